"""Kafka's rules, by the table of its own SslPrincipalMapperTest, and what Java's replacements mean."""

import pytest

from kvota.tls.principal_mapping import MappingError, PrincipalMapper

OF_RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "DEFAULT",
)
RULES = ", ".join(OF_RULES)


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_what_a_broker_takes_is_taken(rules: str) -> None:
    PrincipalMapper(rules)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    ],
)
def test_what_a_broker_refuses_is_refused(rules: str) -> None:
    with pytest.raises(MappingError, match="is no rule"):
        PrincipalMapper(rules)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_counts(subject: str, name: str) -> None:
    assert PrincipalMapper(RULES).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "parts"),
    [
        ("", []),
        ("DEFAULT", ["DEFAULT"]),
        ("RULE://", ["/"]),
        ("RULE:/.*/", ["/.*"]),
        ("RULE:/.*/L", ["/.*/L"]),
        ("RULE://,DEFAULT", ["/", "DEFAULT"]),
        ("  RULE:// ,  DEFAULT  ", ["/", "DEFAULT"]),
        ("  RULE:   /     / ,  DEFAULT  ", ["   /     ", "DEFAULT"]),
        ("  RULE:  /     /U   ,DEFAULT  ", ["  /     /U", "DEFAULT"]),
        (
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
            ["([A-Z]*)/$1/U", "([a-z]+)/$1", "DEFAULT"],
        ),
        (",   , , ,      , , ,   ", []),
        (",,RULE://,,,DEFAULT,,", ["/", "DEFAULT"]),
        (",  , RULE: /   /    ,,,   DEFAULT, ,   ", [" /   ", "DEFAULT"]),
        ("     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,", ["   /  /U", "DEFAULT"]),
        (r"RULE:\/\\\(\)\n\t/\/\//", [r"\/\\\(\)\n\t/\/\/"]),
        (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", [r"\**\/+/*/L", r"\/*\**/**"]),
        (
            "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
            [
                ",RULE:,/,RULE:,\\//U",
                ",/RULE:,",
                ",RULE:,/L,RULE:,/L",
                ", DEFAULT, /DEFAULT",
                "DEFAULT",
            ],
        ),
    ],
)
def test_rules_are_separated_as_a_broker_does(rules: str, parts: list[str]) -> None:
    found = [
        "DEFAULT"
        if rule.pattern is None
        else f"{rule.written}/{rule.replacement}{'/' if rule.case else ''}{rule.case}"
        for rule in PrincipalMapper(rules)._rules
    ]

    assert found == parts


def test_a_comma_in_a_name_is_no_end_of_it() -> None:
    mapper = PrincipalMapper(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")

    assert mapper.name_of(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:CN=(a)(b)/$2$1$0/", "baCN=ab"),
        ("RULE:CN=(a)(b)/$12/", "a2"),  # there is no group 12: 1, and a 2 behind it
        ("RULE:CN=(a)(b)/$9/", "$9"),
        (r"RULE:CN=(a)(b)/\$1\\/", "$1\\"),
        ("RULE:.*/x/", "xx"),  # at the end it is found once more
    ],
)
def test_replacements_mean_what_they_mean_to_java(rule: str, name: str) -> None:
    assert PrincipalMapper(rule).name_of("CN=ab") == name


@pytest.mark.parametrize(
    ("rule", "subject", "name"),
    [
        ("RULE:^CN=([^,]*).*$/$1/", "CN=orders,OU=\u2028x", None),
        ("RULE:^CN=([^,]*).*$/$1/", "CN=orders,OU=\x85", None),
        ("RULE:^CN=([^,]*).*$/$1/", "CN=a\u2028b", "a\u2028b"),  # a class takes them
        ("RULE:^CN=(.*)$/$1/", "CN=a\r", None),
        (r"RULE:^CN=([^,.]*)\.?[.]?$/$1/", "CN=a.", "a"),
        (r"RULE:^CN=(\w)$\s*/$1/", "CN=a\r\n", "a"),
        ("RULE:^CN=(?s:(.*))/$1/", "CN=a\r", "a\r"),
    ],
)
def test_a_line_ends_where_it_does_for_java(rule: str, subject: str, name: str | None) -> None:
    """What Kafka's own SslPrincipalMapper answers; else a part of a subject that its owner may choose is passed over."""
    mapper = PrincipalMapper(rule)

    if name is None:
        with pytest.raises(MappingError, match="no rule applies"):
            mapper.name_of(subject)
    else:
        assert mapper.name_of(subject) == name


def test_to_a_name_that_no_rule_fits_nobody_belongs() -> None:
    with pytest.raises(MappingError, match='no rule applies to "CN=x"'):
        PrincipalMapper("RULE:^OU=.*$/y/").name_of("CN=x")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (r"RULE:CN=\p{L}+/x/", "only Java knows"),
        ("RULE:CN=[a-z&&[^b]]/x/", "only Java knows"),
        ("RULE:CN=(?<name>a)/x/", "only Java knows"),
        ("RULE:CN=(a/x/", "cannot be read"),
        ("RULE:CN=a/$1/", "has no group"),
        ("RULE:CN=(a)/$x/", "without a number"),
    ],
)
def test_what_would_fail_with_every_certificate_is_refused_at_once(rule: str, said: str) -> None:
    with pytest.raises(MappingError, match=said):
        PrincipalMapper(rule)
