// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// podmanPage is the page whose commands TestPodman runs, with podmanMark as the reason for
// which TestCommands does not.
const (
	podmanPage = "docs/how-to/podman.md"
	podmanMark = "TestPodman runs it"
)

// podmanConf is the configuration of podman. The machine may have cgroups of version 1
// below those of version 2, no firewall for bridges, and limits that root cannot raise.
const podmanConf = `[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"
volumes = ["/usr:/usr:ro"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
`

// podmanStorage is where podman keeps images, volumes and containers.
const podmanStorage = `[storage]
driver = "overlay"
graphroot = "/run/storage"
rootless_storage_path = "/run/storage"
runroot = "/run/containers"
`

// podmanMounts prepares a mount namespace: folders of podman, and lklrun in /opt/lklrun.
const podmanMounts = `set -e
for d in /run /dev/shm /opt /var/tmp; do mount -n -t tmpfs -o mode=1777 tmpfs $d; done
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /opt/lklrun $HOME $XDG_RUNTIME_DIR && chown $uid:$uid $HOME $XDG_RUNTIME_DIR
mount -n --bind $bin /opt/lklrun
exec setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all sh -c "$1"
`

// podmanImage makes an image that contains the machine's own /usr.
const podmanImage = `set -e
cd /run && mkdir image && cd image
mkdir -p etc proc sys dev run tmp opt usr var/tmp root
for l in bin lib lib64 sbin; do ln -s usr/$l $l; done
echo root:x:0:0::/root:/bin/sh >etc/passwd
tar --owner=0 --group=0 -c . | podman import - localhost/image >&2
cd $HOME && ln -s /opt/lklrun bin
`

// TestPodman runs the commands of the page about containers with the real podman, as root
// and as an ordinary user.
func TestPodman(t *testing.T) {
	kit.Need(t, "podman", "crun", "curl", "nginx", "dnsmasq", "unshare", "setpriv", kit.Bin("lklrun"))
	if _, err := os.Stat(kit.Bin("lklrun-amd64.oci.tar")); err != nil {
		t.Fatalf("%v; `make image` makes the image", err)
	}
	commands, errs := parsePage(podmanPage, kit.ReadFile(t, filepath.Join(kit.Root(), podmanPage)))
	for _, e := range errs {
		t.Error(e)
	}
	dir, bin, host := kit.Dir(t), kit.PublicBin(t), newHost(t)
	kit.Must(t,
		os.Rename(copySudo(t), filepath.Join(bin, "sudo")),
		os.WriteFile("/run/resolv.conf", []byte("nameserver "+serverAddr+"\n"), 0o644),
		unix.Mount("/run/resolv.conf", "/etc/resolv.conf", "", unix.MS_BIND, ""),
		os.Chmod(dir, 0o755))
	t.Cleanup(func() { kit.Must(t, unix.Unmount("/etc/resolv.conf", 0)) })
	conf := kit.WriteFile(t, filepath.Join(dir, "containers.conf"), podmanConf)
	storage := kit.WriteFile(t, filepath.Join(dir, "storage.conf"), podmanStorage)
	before := kit.Take(t)
	for _, user := range []struct {
		uid, commands, pages int
	}{{0, 9, 3}, {kit.OrdinaryUID, 8, 2}} {
		t.Run(fmt.Sprint("user ", user.uid), func(t *testing.T) {
			script, ran := podmanImage, 0
			for _, c := range commands {
				// The user's images are not those of root.
				if !strings.HasPrefix(c.Skip, podmanMark) || user.uid != 0 && strings.HasPrefix(c.Text, "sudo ") {
					continue
				}
				script += strings.ReplaceAll(c.Text, "IMAGE", "localhost/image") + "\n"
				ran++
			}
			if ran != user.commands {
				t.Fatalf("%s: the test runs %d commands, expected %d", podmanPage, ran, user.commands)
			}
			script += "test -z \"$(podman ps -aq)\"\n" // no container is left
			cmd := host.Command("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", podmanMounts, "sh", script)
			cmd.Env = []string{
				"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/run/home", "LANG=C.UTF-8",
				fmt.Sprint("uid=", user.uid), "bin=" + bin, fmt.Sprint("XDG_RUNTIME_DIR=/run/user/", user.uid),
				"CONTAINERS_CONF=" + conf, "CONTAINERS_STORAGE_CONF=" + storage,
			}
			r := kit.Run(t, commandLimit, cmd)
			hello, listing := strings.Count(r.Stdout, "hello\n"), strings.Count(r.Stdout, "<title>Directory listing")
			if r.Status != 0 || hello != user.pages || listing != 1 {
				t.Errorf("%d pages of the server, %d of the other container: %v", hello, listing, r)
			}
			before.Settles(interruptLimit)
		})
	}
}
