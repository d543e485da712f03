"""What a notebook imports is never hidden by a module of the same name, nor hides one."""

import pkgutil

import kvota.pipeline


def test_no_name_of_the_package_is_also_a_module_of_it() -> None:
    modules = {found.name for found in pkgutil.iter_modules(kvota.pipeline.__path__)}
    assert modules & set(kvota.pipeline.__all__) == set()
