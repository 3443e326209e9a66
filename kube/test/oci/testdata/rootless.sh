# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Runs containers with a stack as an ordinary user.

mkdir -p /run/home/www
echo from outside >/run/home/www/index.html
busybox httpd -p 127.0.0.1:8082 -h /run/home/www
start() { # NETWORK: with a published port
	podman run -d --name c --network "$1" --annotation lklrun.dev/stack=bbr -p 127.0.0.1:8080:80 \
		localhost/image busybox httpd -f -p 80 -h /etc >&2
	until curl -sS -m 10 http://127.0.0.1:8080/passwd >/run/home/passwd; do sleep 0.1; done
	echo "published, $1: $(cat /run/home/passwd)"
}
start slirp4netns:port_handler=slirp4netns
podman rm -f -t 0 c >&2
start slirp4netns:allow_host_loopback=true
pgrep rootlessport >/dev/null # forwards the port by default
echo "fetched: $(podman exec c curl -sS -m 10 http://10.0.2.2:8082/)"
echo "address: $(podman exec c ip addr add 10.0.2.200/24 dev eth0 2>&1 | head -n 1)"
echo "congestion control: $(lklctl sysctl net.ipv4.tcp_congestion_control | grep -o 'bbr$')"
podman rm -f -t 0 c >&2
podman run --rm --network slirp4netns --annotation lklrun.dev/stack=bbr --cap-add NET_ADMIN localhost/image \
	ip addr add 10.0.2.200/24 dev eth0
echo "address with CAP_NET_ADMIN: permitted"
left() { pgrep -l 'lkl|conmon' || find "$XDG_RUNTIME_DIR/lklrun" -mindepth 1 -maxdepth 1 ! -name .ended | grep .; }
for _ in $(seq 100); do # conmon and the shim end a little later
	left >/dev/null || break
	sleep 0.1
done
echo "left: $(left || echo nothing)"
