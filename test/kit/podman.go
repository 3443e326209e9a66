// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PodmanConf is the beginning of a configuration of podman. The machine may have cgroups
// of version 1 below those of version 2, no firewall for bridges, and limits that root
// cannot raise.
const PodmanConf = `[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
`

// PodmanUsr is the line after it for the image localhost/image, which has the machine's
// programs.
const PodmanUsr = `volumes = ["/usr:/usr:ro"]
`

// podmanEngine follows it.
const podmanEngine = `[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "RUNTIME"
runtime_supports_json = ["crun", "lklrun-oci"]
runtime_supports_nocgroup = ["crun", "lklrun-oci"]
[engine.runtimes]
lklrun-oci = ["/opt/lklrun/lklrun-oci"]
[network]
network_config_dir = "/run/cni"
`

// podmanStorage is where podman keeps images, volumes and containers.
const podmanStorage = `[storage]
driver = "overlay"
graphroot = "/run/storage"
rootless_storage_path = "/run/storage"
runroot = "/run/containers"
`

// OwnNull is a shell script that gives a mount namespace with a tmpfs on /run a /dev/null of
// its own. crun makes the user of a container the owner of its standard streams.
const OwnNull = `mknod -m 666 /run/null c 1 3
mount -n --bind /run/null /dev/null
exec </dev/null
`

// podmanMounts prepares a mount namespace: folders of podman, and lklrun in /opt/lklrun.
const podmanMounts = `set -e
mkdir -p /var/lib/cni
for d in /run /dev/shm /opt /var/tmp /var/lib/cni; do mount -n -t tmpfs -o mode=1777 tmpfs $d; done
` + OwnNull + `mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /dev/net && mount -n -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200
mkdir -p /opt/lklrun /run/netns $HOME $XDG_RUNTIME_DIR && chown $uid:$uid $HOME $XDG_RUNTIME_DIR
mount -n --bind $bin /opt/lklrun
exec setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all sh -c "$1"
`

// podmanImage makes an image for PodmanUsr.
const podmanImage = `set -e
cd /run && mkdir image && cd image
mkdir -p etc proc sys dev run tmp opt usr var/tmp root
for l in bin lib lib64 sbin; do ln -s usr/$l $l; done
echo root:x:0:0::/root:/bin/sh >etc/passwd
tar --owner=0 --group=0 -c . | podman import - localhost/image >&2
cd $HOME && ln -s /opt/lklrun bin
`

// Podman are the folders and the user of a podman that a test runs.
type Podman struct {
	Host *Netns // the machine
	UID  int
	Bin  string // PublicBin
	Conf string // begins containers.conf; PodmanConf

	Runtime string // for containers: crun or lklrun-oci
}

// Command returns a shell that runs the script on a machine of its own with podman. The
// image localhost/image exists.
func (p Podman) Command(t testing.TB, script string) *exec.Cmd {
	t.Helper()
	Need(t, "podman", "crun", "unshare", "setpriv")
	dir := Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := WriteFile(t, filepath.Join(dir, "containers.conf"), p.Conf+strings.Replace(podmanEngine, "RUNTIME", p.Runtime, 1))
	storage := WriteFile(t, filepath.Join(dir, "storage.conf"), podmanStorage)
	cmd := p.Host.Command("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", podmanMounts, "sh", podmanImage+script)
	cmd.Env = []string{
		"PATH=/opt/lklrun:" + p.Bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/run/home", "LANG=C.UTF-8",
		fmt.Sprint("uid=", p.UID), "bin=" + p.Bin, fmt.Sprint("XDG_RUNTIME_DIR=/run/user/", p.UID),
		"CONTAINERS_CONF=" + conf, "CONTAINERS_STORAGE_CONF=" + storage,
	}
	return cmd
}
