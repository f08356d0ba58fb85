"""`pool metrics`: what Prometheus is told, and what it needs to make use of it."""

from importlib.resources import files

import click

from pool import Client
from pool.cli.options import IMPATIENT, lone_endpoint_option
from pool.cli.pools import one_pool
from pool.errors import InvalidConfig

__all__ = ["metrics"]

SHIPPED = {"dashboard": "grafana.json", "alerts": "alerts.yml"}


@click.command()
@click.option("--dashboard", "shipped", flag_value="dashboard", help="Print a dashboard for Grafana instead.")
@click.option("--alerts", "shipped", flag_value="alerts", help="Print alert rules for Prometheus instead.")
@lone_endpoint_option
def metrics(shipped: str | None, endpoints: tuple[str, ...]) -> None:
    """Print the pool's metrics in Prometheus' text format, without a gateway.

    A gateway tells the same at /metrics, and its requests. Write it to a file for node_exporter's textfile collector.
    """
    if shipped is not None:
        text = files("pool.gateway").joinpath("metrics", "dashboards", SHIPPED[shipped]).read_text(encoding="utf-8")
    else:
        try:
            from pool.gateway.metrics import text_of
        except ModuleNotFoundError as error:
            needs = "needs more than the client: pip install 'tf-worker-pool[gateway]'"
            raise InvalidConfig(f"`pool metrics` {needs} ({error})") from None
        with Client(one_pool(endpoints), **IMPATIENT) as client:
            text = text_of(client.metrics())
    click.echo(text, nl=False)
