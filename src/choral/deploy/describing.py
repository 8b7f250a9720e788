"""run.json of a deployment: what every site approved, in public numbers."""

from choral import __version__
from choral.record import FORMAT, About, Data, DeviceLimit
from choral.run.agreement import Agreement
from choral.run.folder import now, versions
from choral.run.result import model_shape
from choral.run.statement import planned_statement
from choral.server_step import described as step_described


def described(study: Agreement, *, tested_on: int | None) -> About:
    """What is run; `tested_on` so many public rows, if the coordinator has any."""
    plan, bounds = study.plan, study.job.data.label_bounds
    return About(
        format=FORMAT,
        choral=__version__,
        kind="deployment",
        seeded=False,
        name=study.file.name,
        started=now(),
        study=study.digest.hex(),
        job=study.file.job,
        data=Data(
            source="the sites' own files",
            devices=plan.devices,
            rows=plan.rows * plan.devices,
            features=len(study.features),
            classes=tuple(study.classes),
            label_bounds=None if bounds is None else (bounds[0], bounds[1]),
            columns_from="declared",
            notes=(f"each site has at least {plan.rows:,} rows; nobody else knows how many",),
            hold_out="all rows of a site are trained on"
            + ("" if tested_on is None else f"; tested on {tested_on:,} public rows"),
        ),
        plan=plan,
        plan_digest=plan.digest,
        secure_sum=study.secure,
        server=step_described(study.job.server_step),
        model=model_shape(study.model),
        delta=study.limit.delta,
        planned=planned_statement(study.costs),
        devices=tuple(DeviceLimit(name=name, rows=plan.rows, limit=study.limit.epsilon) for name in study.terms.ids),
        versions=versions(),
    )
