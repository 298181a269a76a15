"""A plugin of pytest for aio-pika's tests: the server that runs is the container that they would start."""

import os
import sys
from typing import Any

sys.path.insert(0, os.getcwd())
from tests import docker_client

PORT = int(os.environ["RABBITMQ_5672_TCP"])


class Client:
    """What the tests use of a container engine."""

    def __init__(self, *_: Any) -> None:
        pass

    def run(self, _image: str, _ports: list[str], environment: Any = None) -> Any:
        return docker_client.ContainerInfo("the server", {"5672/tcp": PORT}, "127.0.0.1")

    def kill(self, _container: str) -> None:
        pass

    def remove(self, _container: str) -> None:
        pass


docker_client.DockerClient = Client
docker_client.check_docker_available = lambda: docker_client.DockerHostInfo(False, "none")
