// SPDX-License-Identifier: Apache-2.0

// Package containerd starts containerd in namespaces of its own, with lklrun as a runtime
// or as a plug-in for NRI, as docs/how-to/kubernetes.md describes.
package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

const (
	page = "docs/how-to/kubernetes.md"

	// Socket is the path of containerd's socket on the node.
	Socket = "/run/node/containerd.sock"

	// Gateway is the node's address in the network of the pods.
	Gateway = "10.88.0.1"

	startLimit = 30 * time.Second
	endLimit   = 20 * time.Second
)

// settings is the configuration of containerd. The configuration of the page follows it.
const settings = `version = 3
root = '/run/node/root'
state = '/run/node/state'
[debug]
level = 'warn'
[grpc]
address = '` + Socket + `'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '` + Image + `'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '/run/node/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'crun'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
BinaryName = '/usr/local/bin/crun'
`

// network is the network of the pods.
const network = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/node/ipam"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`

// crun starts Debian's crun 1.8.1. It does not know the version of the specification that
// containerd 2 names, and the machine may have cgroups that it does not support.
const crun = `#!/bin/sh
for a; do
	[ "$last" != --bundle ] || sed -i 's/"ociVersion":"[^"]*"/"ociVersion":"1.0.2"/' "$a/config.json"
	last=$a
done
exec /usr/bin/crun --cgroup-manager=disabled "$@"
`

// mounts prepares a mount namespace. Its last command becomes the first process of the PID
// namespace, and the kernel reaps the orphans that it inherits.
const mounts = `set -e
for d in /run /opt /var/lib /var/log /var/tmp; do mount -n -t tmpfs -o mode=755 tmpfs $d; done
` + kit.OwnNull + `mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /opt/lklrun /run/node/net.d /run/netns
mount -n --bind $bin /opt/lklrun
mount -n --bind $dir/bin /usr/local/bin
cp $dir/pods.conflist /run/node/net.d
mkdir -p /opt/nri/plugins
[ -z "$plugin" ] || ln -s /opt/lklrun/lklrun-oci /opt/nri/plugins/50-lklrun
eval "$more"
touch /run/node/prepared
exec env --ignore-signal=CHLD sleep infinity
`

// A Config selects how lklrun serves the pods, and what else the node needs.
type Config struct {
	NRI     bool     // lklrun is a plug-in for NRI, too
	Mounts  string   // further shell commands in the node's mount namespace
	Folders []string // further folders of programs
}

// A Node is a machine with containerd.
type Node struct {
	T   *testing.T
	Net *kit.Netns
	Dir string // a directory of the test, which the node sees, too
	PID string // of the first process

	owner   *testing.T // the node ends with this test
	env     []string
	daemons map[string]*Daemon
}

// Tool returns the path of a program that make cri has built.
func Tool(name string) string { return filepath.Join(kit.Root(), "build/tools/cri", name) }

// New starts a node, which ends with the test.
func New(t *testing.T, c Config) *Node {
	kit.Need(t, "crun", "busybox", "curl", "iptables", "nsenter", "/usr/lib/cni/bridge", kit.Bin("lklrun-oci"),
		Tool("containerd"), Tool("containerd-shim-runc-v2"), Tool("ctr"), Tool("cricall"), Tool("pause"))
	config, plugin := pageConfig(t, 0), ""
	if c.NRI {
		config, plugin = config+pageConfig(t, 1), "yes"
	}
	dir, bin := kit.Dir(t), kit.PublicBin(t)
	kit.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Chmod(dir, 0o755))
	kit.WriteFile(t, filepath.Join(dir, "pods.conflist"), network)
	kit.WriteFile(t, filepath.Join(dir, "config.toml"), settings+config)
	kit.Must(t, os.Chmod(kit.WriteFile(t, filepath.Join(dir, "bin/crun"), crun), 0o755))
	path := append(c.Folders, Tool(""), "/opt/lklrun", "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
	n := &Node{T: t, owner: t, daemons: map[string]*Daemon{}, Net: kit.NewNetns(t, "node"), Dir: dir, env: []string{
		"PATH=" + strings.Join(path, ":"), "LANG=C.UTF-8", "bin=" + bin, "dir=" + dir, "plugin=" + plugin, "more=" + c.Mounts,
	}}
	cmd := n.Net.Command("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", mounts)
	cmd.Env = n.env
	first := kit.Start(t, cmd)
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", first.Pid())
	kit.WaitFor(t, "the node", startLimit, func() bool {
		text, _ := os.ReadFile(children) // unshare(1) starts it
		n.PID = strings.TrimSpace(string(text))
		if !first.Running() {
			_, errs := first.Output()
			t.Fatalf("the node has ended: %s", errs)
		}
		return n.PID != "" && n.has("/run/node/prepared")
	})
	t.Cleanup(n.kill) // it ignores SIGTERM
	n.StartContainerd()
	return n
}

// has reports whether the node has a file.
func (n *Node) has(path string) bool {
	_, err := os.Lstat("/proc/" + n.PID + "/root" + path)
	return err == nil
}

// StartContainerd starts containerd, and waits until it listens.
func (n *Node) StartContainerd() {
	n.T.Helper()
	d := n.Start("containerd", "containerd", "--config", filepath.Join(n.Dir, "config.toml"))
	d.Until(func() bool {
		return n.has(Socket) && kit.Run(n.T, kit.Limit, n.Command("ctr", "-a", Socket, "version")).Status == 0
	})
}

// StopContainerd ends containerd. The pods continue.
func (n *Node) StopContainerd() {
	n.T.Helper()
	n.daemons["containerd"].Stop(n.T)
}

// Import imports an image.
func (n *Node) Import(image []byte) {
	n.T.Helper()
	path := filepath.Join(n.Dir, "image.tar")
	kit.Must(n.T, os.WriteFile(path, image, 0o644))
	n.Run("ctr", "-a", Socket, "-n", "k8s.io", "images", "import", path)
	kit.Must(n.T, os.Remove(path))
}

// pageConfig returns a configuration of containerd from the page: the first one is that of
// the runtime, and the second one that of the plug-in.
func pageConfig(t *testing.T, which int) string {
	text := kit.ReadFile(t, filepath.Join(kit.Root(), page))
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%s: has %d configurations, expected 2", page, len(blocks))
	}
	return strings.ReplaceAll(blocks[which][1], "/usr/lib/lklrun/", "/opt/lklrun/")
}

// In returns the node for a part of the test.
func (n *Node) In(t *testing.T) *Node {
	c := *n
	c.T = t
	return &c
}

// Command returns a command on the node.
func (n *Node) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", n.PID, "-m", "-p", "-n"}, args...)...)
	cmd.Env = n.env
	return cmd
}

// Run runs a command on the node, which must succeed.
func (n *Node) Run(args ...string) string {
	n.T.Helper()
	return kit.OK(n.T, kit.Limit, n.Command(args...))
}

// Errors returns what containerd has written to standard error.
func (n *Node) Errors() string {
	_, errs := n.daemons["containerd"].proc.Output()
	return errs
}

// A Daemon is a program in the background. It ends with the node.
type Daemon struct {
	n    *Node
	name string
	proc *kit.Proc // nsenter(1), which waits for the program
}

// Start starts a program in the background.
func (n *Node) Start(name string, args ...string) *Daemon {
	n.T.Helper()
	const keepPID = `echo $$ >"/run/node/$0.pid" && exec "$@"`
	d := &Daemon{n, name, kit.Start(n.owner, n.Command(append([]string{"sh", "-c", keepPID, name}, args...)...))}
	n.owner.Cleanup(n.kill) // a signal to nsenter(1) does not end the program
	n.daemons[name] = d
	return d
}

// kill ends all processes of the node.
func (n *Node) kill() {
	if n.has("/run/node/prepared") {
		_ = exec.Command("kill", "-KILL", n.PID).Run()
	}
}

// Until waits for cond, and fails the test if the program ends before.
func (d *Daemon) Until(cond func() bool) {
	t := d.n.T
	t.Helper()
	ok := kit.Within(startLimit, func() bool {
		if !d.proc.Running() {
			_, errs := d.proc.Output()
			t.Fatalf("%s has ended: %s", d.name, errs)
		}
		return cond()
	})
	if !ok {
		_, errs := d.proc.Output()
		t.Fatalf("%s: not within %v: %s", d.name, startLimit, errs)
	}
}

// Stop ends the program.
func (d *Daemon) Stop(t *testing.T) {
	t.Helper()
	kit.OK(t, kit.Limit, d.n.Command("sh", "-c", `kill "$(cat "/run/node/$0.pid")"`, d.name))
	d.proc.Wait(endLimit)
}
