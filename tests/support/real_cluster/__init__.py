"""Unmodified Apache RocketMQ as a fixture: its jars, its processes, its tools and Java programs."""

from support.real_cluster.cluster import BrokerNode, RealCluster
from support.real_cluster.jars import VERSIONS, JarsUnavailableError, fetch_jars
from support.real_cluster.java import JavaError, run_admin, run_program
from support.real_cluster.process import JavaProcess, free_port

__all__ = [
    "VERSIONS",
    "BrokerNode",
    "JarsUnavailableError",
    "JavaError",
    "JavaProcess",
    "RealCluster",
    "fetch_jars",
    "free_port",
    "run_admin",
    "run_program",
]
