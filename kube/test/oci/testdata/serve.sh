# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Runs containers with a stack, whose images know nothing of it.

get() { curl -sS -m 10 --retry 10 --retry-connrefused http://127.0.0.1:8080/; }
instance() { podman ps -q --filter name="$1"; }

podman network create one >&2
podman network create two >&2
podman run -d --name web --network one --network two --annotation lklrun.dev/stack=mptcp \
	-p 127.0.0.1:8080:80 localhost/nginx >&2
echo "published: $(get)"
echo "interfaces: $(lklctl list | grep -o 'eth0=raw:[^ ]*')"

podman run -d --name files --network one --annotation lklrun.dev/stack=bbr \
	--sysctl net.ipv4.tcp_notsent_lowat=4242 --health-interval disable \
	--health-cmd 'wget -q -O /dev/null http://127.0.0.1:81/passwd' localhost/busybox httpd -f -p 81 -h /etc >&2
podman healthcheck run files
echo "healthy: $? $(podman inspect files -f '{{.State.Health.Status}}')"
web=$(podman inspect web -f '{{.NetworkSettings.Networks.one.IPAddress}}')
echo "exec: $(podman exec files wget -q -O - "http://$web/")"
echo "fetched: $(podman exec files wget -q -O - "http://$web/big" | wc -c)"
files=$(podman inspect files -f '{{.NetworkSettings.Networks.one.IPAddress}}')
sleep 1000 | busybox nc "$files" 81 &
until ss -Htn state established "dport = :81" | grep -q .; do sleep 0.1; done
echo "congestion control: $(lklctl -n "$(instance files)" netstat -Hti state established sport = :81 | grep -o ' bbr ')"
kill $!
echo "sysctl: $(lklctl -n "$(instance files)" sysctl net.ipv4.tcp_notsent_lowat)"

# The container's files are those of its stack, and it cannot write to them.
inside() { podman exec files "$@" 2>&1; }
echo "files: $(inside cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_notsent_lowat | paste -sd ' ')"
echo "devices: $(inside ls /sys/class/net | grep -v bonding_masters | paste -sd ' '), $(inside cat /proc/net/dev | grep -c ':')"
echo "sockets: $(inside cat /proc/net/tcp6 /proc/net/tcp | grep -c ':0051 .* 0A ')"
inside sh -c 'umount /proc/sys/net; mount -o remount,rw /proc/sys/net; echo cubic >/proc/sys/net/ipv4/tcp_congestion_control' >&2 || true
echo "written: $(lklctl -n "$(instance files)" sysctl net.ipv4.tcp_congestion_control) $(inside cat /proc/sys/net/ipv4/tcp_congestion_control)"

# A server of the host sees both paths of a client.
mkdir -p /run/www
truncate -s 2G /run/www/big
(cd /run/www && exec mptcpize run python3 -m http.server 83 --bind 10.89.0.1 >/dev/null 2>&1) &
server=$!
until ss -Hltn 'sport = :83' | grep -q .; do sleep 0.1; done
podman run -d --name fetch --network one --network two --annotation lklrun.dev/stack=mptcp \
	localhost/busybox wget -q -O /dev/null http://10.89.0.1:83/big >&2
paths() { ss -Htin state established 'sport = :83' | grep -c 'bytes_acked:[0-9]\{7,\}.*tcp-ulp-mptcp'; }
until [ "$(paths)" = 2 ]; do sleep 0.1; done
echo "mptcp: $(lklctl -n "$(instance fetch)" mptcp | grep -c '^ .*10\.89\.0\.1:83')"
echo "subflows: $(ss -Htn state established 'sport = :83' | awk '{print $4}' | sed 's/[0-9]*:.*/0\/24/' | sort | paste -sd ' ')"
podman rm -f -t 0 fetch >&2
kill "$server"

podman exec files mv /etc/passwd /etc/lost
podman healthcheck run files && status=0 || status=$?
echo "unhealthy: $status"
podman stop -t 0 web >&2
podman start web >&2
echo "restarted: $(get)"
podman logs web
podman rm -f -t 0 web files >&2
left() { pgrep -l 'lkl|conmon' || find /run/netns /run/lklrun -mindepth 1 -maxdepth 1 ! -name .ended | grep .; }
for _ in $(seq 100); do # conmon and the shim end a little later
	left >/dev/null || break
	sleep 0.1
done
echo "left: $(left || echo nothing)"
