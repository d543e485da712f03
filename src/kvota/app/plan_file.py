"""The quotas that ``kvota recommend`` starts from and ends with, in files of the kind that their names say."""

from pathlib import Path

from kvota.app.quotas_as_code.undo_file import iso_time
from kvota.app.system_clock import SystemClock
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.planning.plan import Plan
from kvota.planning.wanted_quotas import WantedQuotas
from kvota.store.quotas_file import load_client_quotas, write_quotas
from kvota.store.quotas_yaml import (
    SUFFIXES,
    PlanHead,
    QuotasDocument,
    load_document,
    write_document,
)


def load_quotas_in_force(path: Path) -> ClientQuotas:
    """Return the quotas of a quotas.toml or quotas.yaml.

    Raises:
        ConfigurationError: all faults of the file.
    """
    if path.suffix in SUFFIXES:
        return load_document(path).wanted.quotas
    return load_client_quotas(path)


def write_planned_quotas(
    path: Path,
    quotas: ClientQuotas,
    plan: Plan,
    *,
    plan_id: str,
    computed_from: ClientQuotas | None = None,
) -> None:
    """Write them; YAML says why, and what the plan was computed from.

    Args:
        path: of the file.
        quotas: after the plan.
        plan: has the reasons.
        plan_id: its name.
        computed_from: the quotas before; without them the file is no plan, but what is wanted.

    Raises:
        UsageError: there is a name or a limit that such a file cannot have.
        UnreachableError: it could not be written; what was there before is as it was.
    """
    heading = f"kvota plan {plan_id}"
    if path.suffix not in SUFFIXES:
        write_quotas(path, quotas, heading=heading)
        return
    head = None
    if computed_from is not None:
        made_at = iso_time(SystemClock().now_us() // 1000)
        head = PlanHead(made_at=made_at, in_force=computed_from)
    document = QuotasDocument(wanted=WantedQuotas(quotas=quotas), plan=head)
    write_document(path, document, heading=heading, reasons=_reasons(plan))


def _reasons(plan: Plan) -> dict[QuotaEntity, str]:
    texts: dict[QuotaEntity, list[str]] = {}
    for line in plan.lines:
        text = f"{line.quota_type}: {line.reason.value}: {line.evidence}"
        texts.setdefault(line.entity, []).append(text)
    return {entity: "; ".join(of_entity) for entity, of_entity in texts.items()}
