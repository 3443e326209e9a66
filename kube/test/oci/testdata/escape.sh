# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Makes the attempts of csrc/tests/escape in a container: escape.sh FOLDER FLAG...

dir=$1
shift
podman run -d --name c "$@" --annotation lklrun.dev/stack=bbr -v "$dir:/mnt" localhost/image sleep 1000 >&2
ns=$(podman inspect -f '{{.NetworkSettings.SandboxKey}}' c)
inside() { nsenter --net="$ns" "$@"; }
inside sh -c 'ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up &&
	ip addr add 10.99.0.1/24 dev v0 && ip addr add fd99::1/64 dev v0 nodad'
# Without a route, the stack's own answers differ from those of the host's kernel.
lklctl exec -- ip route del default
inside python3 "$dir/witness.py" >/run/heard &
witness=$!
until [ -s /run/heard ]; do sleep 0.1; done
touch "$dir/netns"
mount -n --bind /proc/self/ns/net "$dir/netns"
set -- $(cat /run/heard) ESCAPE_HOST4=10.99.0.1 ESCAPE_HOST6=fd99::1 ESCAPE_LINK=v0 ESCAPE_TAP=escape0 ESCAPE_TTL=none \
	ESCAPE_NETNS=/mnt/netns ESCAPE_ABSTRACT=escape ESCAPE_PATH=/mnt/none ESCAPE_DIR=/mnt ESCAPE_BIN=/opt/lklrun ESCAPE_NAME=c \
	ESCAPE_RUN=/run/lklrun/c ESCAPE_OTHER_NAME=d ESCAPE_OTHER_RUN=/run/lklrun/d ESCAPE_SETUID=/mnt/setuid ESCAPE_FILECAP=/mnt/filecap \
	ESCAPE_STATIC=/mnt/static
# The accomplice has sockets of the host's kernel, and passes them to the container.
mkfifo /run/end
inside env "$@" ESCAPE_OUTSIDE="$dir/outside.sock" "$dir/escape" outside </run/end >/run/outside &
outside=$!
exec 9>/run/end
until [ -s /run/outside ]; do sleep 0.1; done
set -- env "$@" $(cat /run/outside) ESCAPE_OUTSIDE=/mnt/outside.sock
names=$("$dir/escape" list | grep -v -e kill-lklhost -e '^hostnet-')
echo "attempts: $(echo "$names" | wc -l)"
podman exec c "$@" /mnt/escape $names
exec 9>&-
wait "$outside"
cat /run/outside /run/heard
echo "without a stack:"
inside "$@" "$dir/escape" inet-stream inet-dgram packet-raw >&2
until [ "$(grep -c heard /run/heard)" -ge 3 ]; do sleep 0.1; done
cat /run/heard
kill "$witness"
umount "$dir/netns"
podman rm -f -t 0 c >&2
