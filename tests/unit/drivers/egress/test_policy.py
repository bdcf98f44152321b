"""Which names and addresses a grant lets out."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.shared.hosts import plain_host
from sandmeshd.contracts.public_addresses import kind_of
from sandmeshd.drivers.egress.grants import describe, policy_of
from sandmeshd.drivers.egress.packages import package_variables
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget, Policy, Reach
from sandmeshd.drivers.egress.settings import EgressSettings, PackageIndexes
from sandmeshd.drivers.egress.targets import read_authority, read_url

PUBLIC, HOSTS = pb.NETWORK_MODE_PUBLIC, pb.NETWORK_MODE_HOSTS

PRIVATE = [
    "0.0.0.0",  # noqa: S104 - nothing is bound
    *("0.1.2.3", "127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("100.64.0.1", "100.100.100.200", "169.254.169.254", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
    *("168.63.129.16", "203.0.113.80", "240.0.0.1", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1"),
    *("ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "::127.0.0.1", "100::1", "5f00::1"),
]


def policy(mode: pb.NetworkMode.ValueType, *hosts: str, **settings: object) -> Policy:
    """Read a grant."""
    return policy_of(pb.NetworkGrant(mode=mode, hosts=hosts), EgressSettings.model_validate(settings))


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_has_a_kind(address: str) -> None:
    assert kind_of(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "151.101.0.223", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_a_public_address_has_none(address: str) -> None:
    assert kind_of(address) == ""


def test_public_is_every_host_on_the_ports_of_the_web() -> None:
    public = policy(PUBLIC)
    assert not public.names(EgressTarget("example.org", 443))
    with pytest.raises(EgressRefused, match=r"port 22 of example.org is not granted, only 80 and 443"):
        public.names(EgressTarget("example.org", 22))


def test_hosts_are_those_listed() -> None:
    some = policy(HOSTS, "pypi.org", "*.example.org", "git.example.net:22")
    assert some.names(EgressTarget("pypi.org", 443))
    assert not some.names(EgressTarget("a.example.org", 80))
    assert some.names(EgressTarget("git.example.net", 22))
    for host, port in (("example.org", 443), ("evilpypi.org", 443), ("git.example.net", 443), ("1.1.1.1", 443)):
        with pytest.raises(EgressRefused):
            some.names(EgressTarget(host, port))


def test_public_takes_hosts_beside() -> None:
    both = policy(PUBLIC, "nas.local:8080")
    assert both.names(EgressTarget("nas.local", 8080))
    assert not both.names(EgressTarget("nas.local", 80))
    assert not both.names(EgressTarget("example.org", 80))


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused_whatever_its_name(address: str) -> None:
    with pytest.raises(EgressRefused, match="not public"):
        policy(PUBLIC).reachable(EgressTarget("a.example.org", 80), [address], Reach.PUBLIC)


def test_a_host_that_is_named_may_be_private_but_not_everybody() -> None:
    named = policy(HOSTS, "nas.local")
    reach = named.names(EgressTarget("nas.local", 80))
    assert named.reachable(EgressTarget("nas.local", 80), ["10.0.0.5", "::1"], reach) == ["10.0.0.5"]
    for address in ("0.1.0.0", "::", "224.0.0.1", "::ffff:0.0.0.0"):
        with pytest.raises(EgressRefused, match="stands for no single host"):
            named.reachable(EgressTarget("nas.local", 80), [address], reach)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd00::5", "::ffff:10.0.0.1"]
)
def test_a_name_leads_to_private_networks(address: str) -> None:
    named, nas = policy(HOSTS, "nas.local"), EgressTarget("nas.local", 80)
    assert named.reachable(nas, [address], named.names(nas)) == [address]


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "::127.0.0.1", "2002:7f00:1::"),
        *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1", "168.63.129.16", "192.0.0.192"),
    ],
)
def test_a_name_never_leads_to_loopback_link_local_or_metadata_but_the_address_does(address: str) -> None:
    named, meta = policy(HOSTS, "meta.test"), EgressTarget("meta.test", 80)
    with pytest.raises(EgressRefused, match="A name never leads there"):
        named.reachable(meta, [address], named.names(meta))
    itself = EgressTarget(plain_host(address if ":" not in address else f"[{address}]") or "", 80)
    literal = policy(HOSTS, itself.named)
    assert literal.reachable(itself, [address], literal.names(itself)) == [address]


def test_an_operator_keeps_private_addresses_to_the_node() -> None:
    strict = policy(HOSTS, "nas.local", "packages", private="never")
    nas, index = EgressTarget("nas.local", 80), EgressTarget("pypi.org", 443)
    with pytest.raises(EgressRefused, match="This mesh lets no sandbox reach such addresses"):
        strict.reachable(nas, ["10.0.0.5"], strict.names(nas))
    # What the operator configured is the operator's own wish.
    assert strict.reachable(index, ["10.0.0.5"], strict.names(index)) == ["10.0.0.5"]


def test_of_mixed_addresses_only_the_public_ones_are_reached() -> None:
    found = policy(PUBLIC).reachable(EgressTarget("a.org", 80), ["10.0.0.1", "1.1.1.1", "::1"], Reach.PUBLIC)
    assert found == ["1.1.1.1"]


def test_a_refusal_says_how_to_grant_it() -> None:
    with pytest.raises(EgressRefused) as caught:
        policy(HOSTS, "pypi.org").names(EgressTarget("db.example.org", 5432))
    assert 'network=["db.example.org:5432"]' in str(caught.value)
    assert "--network db.example.org:5432" in str(caught.value)


def test_packages_are_the_indexes_of_the_node_and_their_files() -> None:
    usual = policy(HOSTS, "packages")
    for host in ("pypi.org", "files.pythonhosted.org", "registry.npmjs.org"):
        assert usual.names(EgressTarget(host, 443))
        with pytest.raises(EgressRefused):
            usual.names(EgressTarget(host, 80))
    indexes = PackageIndexes(pip="http://ada:secret@pip.corp:8081/simple", pip_extra=("file:///srv/wheels",))
    for host in ("deb.debian.org", "archive.ubuntu.com", "dl-cdn.alpinelinux.org"):
        assert usual.names(EgressTarget(host, 80))
        assert usual.names(EgressTarget(host, 443))
    own = policy(HOSTS, "packages", indexes=indexes)
    assert own.names(EgressTarget("pip.corp", 8081))
    with pytest.raises(EgressRefused):
        own.names(EgressTarget("pypi.org", 443))


def test_sandboxes_are_told_of_indexes_without_passwords_and_directories() -> None:
    indexes = PackageIndexes(
        pip="http://ada:secret@pip.corp:8081/simple",
        pip_extra=("file:///srv/wheels", "https://x.corp/s"),
        npm="file:///srv/npm",
    )
    variables = package_variables(indexes)
    assert variables["PIP_INDEX_URL"] == variables["UV_DEFAULT_INDEX"] == "http://pip.corp:8081/simple"
    assert variables["PIP_EXTRA_INDEX_URL"] == "https://x.corp/s"
    assert variables["PIP_TRUSTED_HOST"] == "pip.corp:8081"
    assert "NPM_CONFIG_REGISTRY" not in variables
    assert package_variables(PackageIndexes()) == {}


def test_a_grant_is_described_for_people() -> None:
    assert describe(pb.NetworkGrant(mode=PUBLIC, hosts=["a.b:1"])) == "public, a.b:1: own namespace, egress proxy"
    assert describe(pb.NetworkGrant(mode=pb.NETWORK_MODE_NONE)) == "none: own namespace"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "example.org",
            "example.org:",
            "example.org:99999",
            f"example.org:{'1' * 6000}",
            "example.org:443" + "0" * 6,
            "example.org:\u00b2",
            "example.org:-1",
            "example.org:+80",
            "example.org:\uff18\uff10",
        ),
        *("user@example.org:80", "exa%6dple.org:80", "127.1:80", "0x7f000001:80", "2130706433:80", "017700000001:80"),
        *("::1:80", "[::1%25lo]:80", "[::1", "a b:80", ":80", "a\\b:80", "[127.0.0.1]x:80", "a/b:80", "*.org:80"),
        "example.org:\uff18\uff10",
    ],
)
def test_a_target_that_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(EgressRefused):
        read_authority(text)


@pytest.mark.parametrize(
    "url", ["/path", "https://example.org/", "ftp://example.org/", "http:/example.org", "http://", "http://u:p@a.org/"]
)
def test_only_absolute_http_urls_are_taken(url: str) -> None:
    with pytest.raises(EgressRefused):
        read_url(url)


def test_a_url_is_read() -> None:
    resource = read_url("HTTP://[::1]:8080?q=a#b")
    assert (resource.target, resource.path) == (EgressTarget("::1", 8080), "/?q=a")
    assert read_url("http://Example.org.").target == EgressTarget("example.org", 80)
