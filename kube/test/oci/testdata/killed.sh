# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Kills each process of containers with a stack, and shows what is left.

start() { podman run -d --name c --annotation lklrun.dev/stack=bbr -p 127.0.0.1:8080:80 localhost/image busybox httpd -f -p 80 -h /etc; }
answers() { curl -sS -m 2 "$@" http://127.0.0.1:8080/passwd >/dev/null 2>&1; }
left() {
	{
		pgrep -l 'lkl|conmon|crun|httpd|busybox'
		find /run/lklrun /run/netns -mindepth 1 -maxdepth 1 ! -name .ended
		ip -o link show type veth
		iptables -t nat -S | grep ':80$'
		podman ps -aq
	} 2>/dev/null
}
gone() { # WHAT FUNCTION: waits at most 10 s until the function prints nothing
	for _ in $(seq 100); do
		[ -n "$($2)" ] || break
		sleep 0.1
	done
	echo "$1: $2: $($2 | tr '\n' ' ')"
}
# A zombie is the business of conmon, which waits for its runtime.
stack() { find /run/lklrun -mindepth 1 -maxdepth 1 ! -name .ended; pgrep -l -r D,R,S lkl; }

# Processes of a running container.
for what in 'lklhost --run' 'lklrun --detached' 'lklrun-oci hold' conmon 'busybox httpd'; do
	start >&2
	answers --retry 20 --retry-delay 1 --retry-connrefused || echo "$what: no answer"
	kill -KILL "$(pgrep -o -f "^([^ ]*/)?$what")"
	case $what in
	conmon) answers || echo "$what: the container has stopped" ;;
	*)
		gone "$what" stack
		if answers; then echo "$what: answers without a stack"; fi
		if [ "$what" != 'busybox httpd' ]; then podman exec c true; fi
		;;
	esac
	podman rm -f -t 0 c >&2
	gone "$what" left
done

# Processes that create a container. This crun waits until it is killed.
cp /usr/bin/crun /run/crun.real
cat >/run/crun.waits <<'CRUN'
#!/bin/sh
case " $* " in
*" create "*) echo $$ >/run/crun.pid; exec sleep 60 ;;
esac
exec /run/crun.real "$@"
CRUN
chmod +x /run/crun.waits
for what in crun lklrun-oci conmon; do
	mount -n --bind /run/crun.waits /usr/bin/crun
	rm -f /run/crun.pid
	(start >&2 || echo "$what: podman reports a failure") &
	until [ -s /run/crun.pid ]; do sleep 0.1; done
	crun=$(cat /run/crun.pid)
	umount /usr/bin/crun
	case $what in
	crun) kill -KILL "$crun" ;;
	lklrun-oci)
		kill -KILL "$(ps -o ppid= -p "$crun" | tr -d ' ')"
		gone "$what creating" stack # before podman asks to delete the container
		;;
	conmon) kill -KILL "$(pgrep conmon)" ;;
	esac
	if [ "$what" != crun ]; then kill -KILL "$crun"; fi
	wait
	podman rm -f -t 0 c >&2
	gone "$what creating" left
done
