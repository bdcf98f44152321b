#!/usr/bin/env bash
# Build Kubernetes' server programs, for the tests, from Debian's source package, and print the folder they are in.
# No package index has them as binaries. The folder keeps them from one run to the next; a build takes 5 to 15 minutes.
# Needs apt (the machine's own archive), golang-go, make, rsync, patch and dpkg-dev. With --check it builds nothing, and
# fails where something would have to be built.
set -euo pipefail

version=1.20.2
programs=(kube-apiserver kubelet kube-scheduler kube-controller-manager)
folder=${SANDMESH_TEST_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/sandmesh/kubernetes-$version}

made() {
    { echo "$version" && declare -f mend_maps compile; } | sha256sum
}

# What the programs were made of is beside them: those of an earlier form of this script are built anew.
is_built() {
    [ "$(cat "$folder/made" 2>/dev/null)" = "$(made)" ] || return 1
    for program in "${programs[@]}"; do
        [ -x "$folder/$program" ] || return 1
    done
}

# An apt of its own, so that the machine's lists and sources stay as they are.
own_apt() {
    apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= \
        -o APT::Get::List-Cleanup=0 -o Acquire::Retries=3 "$@"
}

# The same archives as the machine's, as sources of source packages.
write_sources() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(SIGNED_BY)' 'Identifier: Packages' 'Component: main' | sort -u \
        | while read -r uri release signed; do
            case "$signed" in /*) signed="[signed-by=$signed] " ;; *) signed= ;; esac
            case "$release" in *bookworm*) echo "deb-src $signed$uri $release main" ;; esac
        done >"$work/sources.list"
    [ -s "$work/sources.list" ] || { echo "kubernetes_build.sh: apt knows no archive of Debian bookworm" >&2; exit 1; }
}

fetch() {
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    write_sources
    own_apt update
    cd "$work"
    own_apt source kubernetes
    mv kubernetes-"$version"* source 2>/dev/null || mv kubernetes-*/ source
}

# Since Go 1.18 who walks over a map by reflection brings the iterator: without that, the API server ends with a
# segmentation fault as soon as it writes a resource of a custom kind.
mend_maps() {
    sed -i \
        -e 's/^func mapiterinit(.*/func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)/' \
        -e 's/^\t\/\/ rest fields are ignored/\tt, h, buckets, bptr, overflow, oldoverflow unsafe.Pointer\n&/' \
        -e 's/\t\/\/ rest fields are ignored/\tstartBucket uintptr\n\toffset, wrapped, b, i uint8\n\tbucket, checkBucket uintptr/' \
        "$1/unsafe_link.go"
    sed -i \
        -e 's/^\treturn &UnsafeMapIterator{/\tit := new(hiter)\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)\n&/' \
        -e 's/mapiterinit(type2.rtype, \*(\*unsafe.Pointer)(obj)),$/it,/' "$1/unsafe_map.go"
}

compile() {
    cd "$work/source"
    mkdir -p .go/src/k8s.io
    ln -sfn ../../.. .go/src/k8s.io/kubernetes
    mend_maps vendor/github.com/modern-go/reflect2
    unset GOFLAGS GOROOT GO111MODULE
    export GOPATH=$PWD/.go GOCACHE=$work/go-cache GOPROXY=off CGO_ENABLED=0 PATH=/usr/bin:$PATH

    for program in "${programs[@]}"; do
        make WHAT="cmd/$program"
    done
}

install_programs() {
    mkdir -p "$folder"
    for program in "${programs[@]}"; do
        # By a rename, so that a build that is killed leaves no half of a program.
        cp "$(find "$work/source/_output" -type f -name "$program" | head -n 1)" "$folder/.$program"
        mv "$folder/.$program" "$folder/$program"
    done
    made >"$folder/made"
}

if [ "${1:-}" = --check ]; then
    is_built
    exit
fi
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
if ! is_built; then
    work=$(mktemp -d)
    trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
    { (fetch) && (compile) && install_programs; } >"$folder/build.log" 2>&1 </dev/null \
        || { tail -n 30 "$folder/build.log" >&2; exit 1; }
fi
echo "$folder"
