"""What is in deploy/ is what Kubernetes understands, and what our commands offer."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ors import Limits, Server
from ors.cli import ors
from tests.support.commands import running, variables
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
RESOURCES: list[dict[str, Any]] = [
    resource
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for resource in yaml.safe_load_all(path.read_text())
]
KEY = {"Authorization": "Bearer SECRET"}


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in RESOURCES if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pods() -> dict[str, dict[str, Any]]:
    """What runs in the pods, by its part."""
    workloads = [each for each in RESOURCES if each["kind"] in ("StatefulSet", "Deployment")]
    return {each["metadata"]["labels"]["part"]: each["spec"]["template"]["spec"] for each in workloads}


def started(part: str, folder: Path, **environment: str) -> list[str]:
    """The words with which a pod starts `ors`."""
    (folder / "ors").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (folder / "ors").chmod(0o755)
    (container,) = pods()[part]["containers"]
    env = variables({each["name"]: each["value"] for each in container["env"] if "value" in each})
    env |= {**environment, "PATH": f"{folder}:{env['PATH']}"}
    command = [*container["command"], *container["args"]]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    "resource",
    [
        each for each in RESOURCES if each["kind"] != "ServiceMonitor"
    ],  # of the Prometheus operator's own schema
    ids=lambda each: f"{each['kind']}-{each['metadata']['name']}",
)
def test_manifests_fit_the_schemas_of_kubernetes(resource: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    validate.validate(resource, "1.30", strict=True)


@pytest.mark.parametrize("part", ["server", "router"])
def test_pods_start_with_options_and_variables_that_exist(part: str, tmp_path: Path) -> None:
    words = started(part, tmp_path, POD="ors-server-0")
    command = ors.get_command(click.Context(ors), words[0])
    assert command is not None
    assert {word for word in words if word.startswith("--")} <= {
        option for param in command.params for option in param.opts
    }
    (container,) = pods()[part]["containers"]
    ours = {each["name"] for each in container["env"] if each["name"].startswith("ORS_")}
    assert ours <= {param.envvar for param in command.params}


def test_a_pod_is_not_told_of_services_in_variables_that_are_ours() -> None:
    # The Service `ors` would be ORS_PORT=tcp://10.0.0.1:80, which looks like a setting of ours.
    assert all(pod["enableServiceLinks"] is False for pod in pods().values())


def test_the_number_of_a_pod_is_its_slot(tmp_path: Path) -> None:
    words = started("server", tmp_path, POD="ors-server-12")
    assert words[words.index("--slot") + 1] == "12"
    (container,) = pods()["server"]["containers"]
    assert {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in container["env"]


def test_routers_look_for_every_server_that_there_may_be(tmp_path: Path) -> None:
    servers = named("StatefulSet", "ors-server")
    service = named("Service", servers["spec"]["serviceName"])
    most = named("HorizontalPodAutoscaler", "ors-server")["spec"]["maxReplicas"]
    host = f"{servers['metadata']['name']}-{{0}}.{service['metadata']['name']}"
    (port,) = service["spec"]["ports"]
    words = started("router", tmp_path)
    places = [after for word, after in pairwise(words) if word == "--to"]
    assert places == [f"http://{host.format(n)}:{port['port']}" for n in range(most)]


def probes() -> Iterator[Any]:
    for part, pod in pods().items():
        (container,) = pod["containers"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container:
                yield pytest.param(part, container[kind]["httpGet"]["path"], id=f"{part}-{kind}")


@pytest.mark.parametrize(("part", "path"), list(probes()))
def test_probes_need_no_key_and_no_free_place(part: str, path: str) -> None:
    with serving(Server([Lab], limits=Limits(sessions=1), api_keys=["team=SECRET"])) as url:
        Raw(url).session(headers=KEY)
        assert Raw(url).get("/-/health/ready").status == 503
        if part == "server":
            assert Raw(url).get(path).status == 200
            return
        env = {"PYTHONUNBUFFERED": "1", "ORS_API_KEY": "SECRET"}
        with running("route", "--to", url, "--port", "0", env=env) as routing:
            assert Raw(routing.line(r"Routing on (http://\S+)")[1]).get(path).status == 200


def test_prometheus_finds_the_servers_and_has_their_key() -> None:
    monitor, service = named("ServiceMonitor", "ors-servers"), named("Service", "ors-servers")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for each in RESOURCES if each["kind"] == "Service"]
    assert [each for each in services if wanted <= each["metadata"]["labels"].items()] == [service]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    (router,) = pods()["router"]["containers"]
    (key,) = (each for each in router["env"] if each["name"] == "ORS_API_KEY")
    assert endpoint["authorization"] == {"credentials": key["valueFrom"]["secretKeyRef"]}


def test_the_autoscaler_asks_for_what_prometheus_is_told() -> None:
    (rule,) = yaml.safe_load((DEPLOY / "prometheus-adapter.yaml").read_text())["rules"]
    (metric,) = named("HorizontalPodAutoscaler", "ors-server")["spec"]["metrics"]
    (endpoint,) = named("ServiceMonitor", "ors-servers")["spec"]["endpoints"]
    series = re.fullmatch(r'(\w+)\{namespace!="",pod!=""\}', rule["seriesQuery"])
    assert series is not None
    assert re.sub(rule["name"]["matches"], rule["name"]["as"], series[1]) == metric["pods"]["metric"]["name"]
    with serving(Server([Lab], api_keys=["team=SECRET"])) as url:
        raw = Raw(url)
        assert raw.get(endpoint["path"]).status == 401
        assert sum(scraped(raw, endpoint["path"], series[1])) == 0
        raw.session(headers=KEY)
        assert sum(scraped(raw, endpoint["path"], series[1])) == 1


def scraped(raw: Raw, path: str, series: str) -> list[float]:
    """The values of a series; there is at least one."""
    answer = raw.get(path, headers=KEY)
    assert answer.status == 200, answer
    families = text_string_to_metric_families(answer.body.decode())
    samples = [sample for family in families for sample in family.samples if sample.name == series]
    assert samples
    assert not {"namespace", "pod"} & {label for sample in samples for label in sample.labels}
    return [sample.value for sample in samples]


def test_the_image_is_made_of_what_is_there_and_is_not_ignored() -> None:
    lines = [line.split() for line in (DEPLOY / "Dockerfile").read_text().splitlines()]
    sources = {word for words in lines if words[0] == "COPY" for word in words[1:-1]}
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    (entry,) = (words[1] for words in lines if words[0] == "ENTRYPOINT")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry.strip('[]"') in scripts
