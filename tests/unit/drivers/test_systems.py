"""Systems: what of packages' scripts is done, and what templates may name."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from sandmesh.errors import InvalidArgument
from sandmesh.templates.definitions import write_definition
from sandmeshd.drivers.bubblewrap.systems.binds import HOST_FILES
from sandmeshd.drivers.bubblewrap.systems.root import alternatives
from sandmeshd.templates import load_templates
from sandmeshd.templates.template_builder import make_template

SCRIPT = """#!/bin/sh
if [ "$1" = configure ]; then
    update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5 \\
        --slave /usr/share/man/man1/awk.1.gz awk.1.gz /usr/share/man/man1/mawk.1.gz
    update-alternatives --install /usr/bin/$name $name /usr/bin/other 5
    update-alternatives --remove old /usr/bin/old
    update-alternatives --install /usr/bin/x-www-browser x-www-browser /usr/bin/some 40 || true
fi
"""


def test_alternatives_are_taken_from_scripts_where_no_shell_is_needed_to_read_them() -> None:
    found = [words[2:6] for words in alternatives(SCRIPT)]
    assert found == [
        ["/usr/bin/awk", "awk", "/usr/bin/mawk", "5"],
        ["/usr/bin/x-www-browser", "x-www-browser", "/usr/bin/some", "40"],
    ]


def test_a_template_has_the_packages_of_what_it_extends_and_its_own() -> None:
    shipped = dict(load_templates())
    shipped["base"] = shipped["base"].model_copy(update={"system": ("xterm",)})
    template = make_template(write_definition({"name": "mine", "system": ["ffmpeg", "xterm"]}), shipped)
    assert template.system == ("xterm", "ffmpeg")


@pytest.mark.parametrize("name", ["", "-o", "a b", "Upper", "x;y", "../x"])
def test_what_is_not_a_name_of_a_package_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"'mine' is invalid: system"):
        make_template(write_definition({"name": "mine", "system": [name]}), load_templates())


def test_a_system_that_is_not_a_list_of_names_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="list of names of Debian packages"):
        write_definition({"name": "mine", "system": "ffmpeg"})


def test_no_file_of_the_hosts_etc_that_may_have_a_password_is_seen() -> None:
    secrets = "shadow gshadow sudoers ssh pip.conf npmrc gitconfig wgetrc netrc maven maven/settings.xml docker ldap"
    others = "krb5.keytab fstab machine-id environment apt passwd hosts mysql postgresql ssl ssl/private"
    for name in (*secrets.split(), *others.split()):
        assert not any(fnmatch(name, pattern) for pattern in HOST_FILES), name
    assert any(fnmatch("java-21-openjdk", pattern) for pattern in HOST_FILES)


def test_the_page_of_templates_lists_the_packages_of_data() -> None:
    page = " ".join(Path("docs/templates.md").read_text().split())
    listed = page.partition("e2b-charts), and: ")[2].partition(". Of what")[0].split(", ")
    shared = load_templates()["base"].python.requirements
    packages = [line.partition("==")[0] for line in load_templates()["data"].python.requirements[len(shared) :]]
    assert packages[: len(listed)] == listed
    assert packages[len(listed)] == "aiohappyeyeballs"
