# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Makes two images with podman.

# program FILE...: copies programs and their libraries below the current directory.
program() {
	for file in "$@" $(ldd "$@" | grep -o '/[^ ]*[^:]\( \|$\)'); do
		mkdir -p ".${file%/*}"
		cp -L "$file" ".$file"
	done
}
# image NAME CHANGE: imports the current directory.
image() {
	mkdir -p proc sys dev tmp
	tar --owner=0 --group=0 -c . | podman import -c "$2" - "localhost/$1" >&2
}

mkdir -p /run/nginx/etc/nginx /run/nginx/var/log/nginx /run/nginx/var/lib/nginx /run/nginx/var/www /run/nginx/run
cd /run/nginx || exit
program /usr/sbin/nginx
printf 'root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n' >etc/passwd
printf 'root:x:0:\nwww-data:x:33:\n' >etc/group
echo hello from nginx >var/www/index.html
truncate -s 50M var/www/big
cat >etc/nginx/nginx.conf <<'CONF'
user www-data;
worker_processes 2;
error_log /dev/stderr;
events { }
http { access_log /dev/stdout; server { listen 80; listen [::]:80; root /var/www; } }
CONF
image nginx 'CMD ["/usr/sbin/nginx","-g","daemon off;"]'

mkdir -p /run/busybox/bin /run/busybox/etc
cd /run/busybox || exit
busybox=$(readlink -f "$(command -v busybox)")
program "$busybox"
for applet in $(busybox --list); do
	[ -e "bin/$applet" ] || ln -s "$busybox" "bin/$applet"
done
echo root:x:0:0::/root:/bin/sh >etc/passwd
image busybox 'CMD ["sh"]'
cd /
