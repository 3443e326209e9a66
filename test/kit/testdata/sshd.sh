# SPDX-License-Identifier: Apache-2.0
#
# Sets up the namespaces. $1 is the directory of the server's files, which are
# moved to /run/sshd-test because /tmp will be hidden. sshd needs /run/sshd. The
# directory $4, which contains the repository, may be hidden too, so it is
# mounted again at its place.

mount -n --make-rprivate /
mount -n --rbind "$4" /mnt
mount -n -t proc proc /proc
mount -n -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
cp -r "$1" /run/sshd-test
chmod 600 /run/sshd-test/host
mount -n --bind /run/sshd-test/passwd /etc/passwd
mount -n --bind /run/sshd-test/shadow /etc/shadow
mount -n -t tmpfs -o "mode=755,$2" tmpfs /home
mkdir /home/root
mkdir /home/user
chown "$3:$3" /home/user
mount -n -t tmpfs -o mode=1777 tmpfs /tmp
mount -n -t tmpfs -o mode=1777 tmpfs /dev/shm
cd /
if [ -e "$4" ]; then
	umount -n -l /mnt
else
	mkdir -p "$4"
	mount -n --move /mnt "$4"
fi
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/sshd -D -e -f /run/sshd-test/config
