// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

const (
	page   = "docs/how-to/kubernetes.md"
	image  = "localhost/image:latest"
	socket = "/run/node/containerd.sock"

	startLimit = 30 * time.Second
)

// object is a JSON object.
type object = map[string]any

// settings is the configuration of containerd. The configuration of the page follows it.
const settings = `version = 3
root = '/run/node/root'
state = '/run/node/state'
[debug]
level = 'warn'
[grpc]
address = '/run/node/containerd.sock'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'localhost/image:latest'
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

// mounts prepares a mount namespace, and starts containerd. cni0 exists before the first
// pod, so that the pods leave no device behind.
const mounts = `set -e
for d in /run /opt /var/tmp; do mount -n -t tmpfs -o mode=755 tmpfs $d; done
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /opt/lklrun /run/node/net.d /run/netns
mount -n --bind $bin /opt/lklrun
mount -n --bind $dir/bin /usr/local/bin
cp $dir/pods.conflist /run/node/net.d
mkdir -p /opt/nri/plugins
[ -z "$plugin" ] || ln -s /opt/lklrun/lklrun /opt/nri/plugins/50-lklrun
exec containerd --config $dir/config.toml
`

// A node is a machine with containerd.
type node struct {
	t      *testing.T
	net    *kit.Netns
	pid    string // of containerd
	daemon *kit.Proc
	env    []string

	handler string // the pods' runtime handler
	nri     bool   // whether the plug-in serves the pods
}

func tool(name string) string { return filepath.Join(kit.Root(), "build/tools/cri", name) }

// newNode starts containerd in namespaces of its own, with lklrun as a runtime or as a
// plug-in for NRI.
func newNode(t *testing.T, nri bool) *node {
	kit.Need(t, "crun", "busybox", "curl", "iptables", "nsenter", "/usr/lib/cni/bridge", kit.Bin("lklrun-oci"),
		tool("containerd"), tool("containerd-shim-runc-v2"), tool("ctr"), tool("cricall"), tool("pause"))
	handler, config, plugin := "lklrun", pageConfig(t, 0), ""
	if nri {
		handler, config, plugin = "crun", config+pageConfig(t, 1), "yes"
	}
	dir, bin := kit.Dir(t), kit.PublicBin(t)
	kit.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Chmod(dir, 0o755))
	kit.WriteFile(t, filepath.Join(dir, "pods.conflist"), network)
	kit.WriteFile(t, filepath.Join(dir, "config.toml"), settings+config)
	kit.Must(t, os.Chmod(kit.WriteFile(t, filepath.Join(dir, "bin/crun"), crun), 0o755))
	kit.Must(t, os.WriteFile(filepath.Join(dir, "image.tar"), newImage(t), 0o644))
	n := &node{t: t, handler: handler, nri: nri, net: kit.NewNetns(t, "node"), env: []string{
		"PATH=" + tool("") + ":/opt/lklrun:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"LANG=C.UTF-8", "bin=" + bin, "dir=" + dir, "plugin=" + plugin,
	}}
	cmd := n.net.Command("unshare", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", mounts)
	cmd.Env = n.env
	n.daemon = kit.Start(t, cmd)
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", n.daemon.Pid())
	kit.WaitFor(t, "containerd", startLimit, func() bool {
		text, _ := os.ReadFile(children) // unshare(1) starts it
		n.pid = strings.TrimSpace(string(text))
		if !n.daemon.Running() {
			_, errs := n.daemon.Output()
			t.Fatalf("containerd has ended: %s", errs)
		}
		return n.pid != "" && exec.Command("test", "-S", "/proc/"+n.pid+"/root"+socket).Run() == nil
	})
	n.run("ctr", "-a", socket, "-n", "k8s.io", "images", "import", filepath.Join(dir, "image.tar"))
	return n
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

// in returns the node for a part of the test.
func (n *node) in(t *testing.T) *node {
	c := *n
	c.t = t
	return &c
}

// command returns a command on the node.
func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", n.pid, "-m", "-p", "-n"}, args...)...)
	cmd.Env = n.env
	return cmd
}

// run runs a command on the node, which must succeed.
func (n *node) run(args ...string) string {
	n.t.Helper()
	return kit.OK(n.t, kit.Limit, n.command(args...))
}

// try makes a call of the container runtime interface.
func (n *node) try(method string, request object) (object, error) {
	n.t.Helper()
	text, err := json.Marshal(request)
	kit.Must(n.t, err)
	r := kit.Run(n.t, kit.Limit, n.command("cricall", socket, method, string(text)))
	if r.Status != 0 {
		return nil, fmt.Errorf("%v", r)
	}
	var reply object
	kit.Must(n.t, json.Unmarshal([]byte(r.Stdout), &reply))
	return reply, nil
}

// call is like try, but the call must succeed.
func (n *node) call(method string, request object) object {
	n.t.Helper()
	reply, err := n.try(method, request)
	if err != nil {
		_, errs := n.daemon.Output()
		n.t.Fatalf("%s: %v\ncontainerd: %s", method, err, errs)
	}
	return reply
}

// A pod is the sandbox of a pod, with its configuration.
type pod struct {
	n        *node
	id, addr string
	config   object
}

// kubelet gives each container a PID namespace of its own.
var namespaces = object{"pid": "CONTAINER"}

// sandbox returns the configuration of a pod.
func sandbox(name string, annotations map[string]string, more object) object {
	config := object{
		"metadata": object{"name": name, "uid": name, "namespace": "default"}, "logDirectory": "/run/node/logs",
		"annotations": annotations, "linux": object{"securityContext": object{"namespaceOptions": namespaces}},
	}
	for k, v := range more {
		config[k] = v
	}
	return config
}

// start starts a pod.
func (n *node) start(config object) *pod {
	n.t.Helper()
	p := &pod{n: n, config: config}
	p.id = n.call("RunPodSandbox", object{"runtimeHandler": n.handler, "config": config})["podSandboxId"].(string)
	status := n.call("PodSandboxStatus", object{"podSandboxId": p.id})["status"].(object)
	p.addr, _ = status["network"].(object)["ip"].(string)
	return p
}

// instance is the name of the pod's stack.
func (p *pod) instance() string { return p.id[:12] }

// A container is one of a pod.
type container struct {
	n  *node
	id string
}

// try starts a container in the pod. security is its security context.
func (p *pod) try(name string, security object, command ...string) (container, error) {
	p.n.t.Helper()
	security["namespaceOptions"] = namespaces
	mount := func(path string) object { return object{"containerPath": path, "hostPath": path, "readonly": true} }
	reply, err := p.n.try("CreateContainer", object{"podSandboxId": p.id, "sandboxConfig": p.config, "config": object{
		"metadata": object{"name": name}, "image": object{"image": image}, "command": command, "logPath": name + ".log",
		"mounts": []object{mount("/usr"), mount("/run/www")}, "linux": object{"securityContext": security},
	}})
	if err != nil {
		return container{}, err
	}
	c := container{p.n, reply["containerId"].(string)}
	_, err = p.n.try("StartContainer", object{"containerId": c.id})
	return c, err
}

// run is like try, but the container must start.
func (p *pod) run(name string, security object, command ...string) container {
	p.n.t.Helper()
	c, err := p.try(name, security, command...)
	if err != nil {
		_, errs := p.n.daemon.Output()
		p.n.t.Fatalf("container %s: %v\ncontainerd: %s", name, err, errs)
	}
	return c
}

// end removes the pod.
func (p *pod) end() {
	p.n.t.Helper()
	p.n.call("StopPodSandbox", object{"podSandboxId": p.id})
	p.n.call("RemovePodSandbox", object{"podSandboxId": p.id})
}

// try runs a command in the container, as probes do, and returns its output.
func (c container) try(command ...string) (string, error) {
	c.n.t.Helper()
	reply, err := c.n.try("ExecSync", object{"containerId": c.id, "cmd": command, "timeout": 20})
	if err != nil {
		return "", err
	}
	// protobuf's JSON leaves out zeros, and encodes bytes like Go's.
	var result struct {
		Stdout, Stderr []byte
		ExitCode       int
	}
	text, err := json.Marshal(reply)
	kit.Must(c.n.t, err, json.Unmarshal(text, &result))
	if result.ExitCode != 0 {
		return "", fmt.Errorf("%q: status %d: %s%s", command, result.ExitCode, result.Stdout, result.Stderr)
	}
	return string(result.Stdout), nil
}

// exec is like try, but the command must succeed.
func (c container) exec(command ...string) string {
	c.n.t.Helper()
	out, err := c.try(command...)
	if err != nil {
		c.n.t.Fatal(err)
	}
	return out
}

// newImage returns an image whose /usr is that of the machine, as podman save writes it.
func newImage(t *testing.T) []byte {
	pause, err := os.ReadFile(tool("pause"))
	kit.Must(t, err)
	layer := archive(t, []file{
		{"bin", tar.TypeSymlink, "usr/bin"}, {"sbin", tar.TypeSymlink, "usr/sbin"},
		{"lib", tar.TypeSymlink, "usr/lib"}, {"lib64", tar.TypeSymlink, "usr/lib64"},
		{"tmp/", tar.TypeDir, ""}, {"etc/", tar.TypeDir, ""}, {"root/", tar.TypeDir, ""},
		{"etc/passwd", tar.TypeReg, "root:x:0:0::/root:/bin/sh\n"}, {"pause", tar.TypeReg, string(pause)},
	})
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": []string{"/pause"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	kit.Must(t, err)
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	kit.Must(t, err)
	return archive(t, []file{
		{"manifest.json", tar.TypeReg, string(manifest)}, {"config.json", tar.TypeReg, string(config)},
		{"layer.tar", tar.TypeReg, string(layer)},
	})
}

// A file is one of an archive; text is the content, or the target of a symbolic link.
type file struct {
	name string
	kind byte
	text string
}

func archive(t *testing.T, files []file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: 0o755}
		if f.kind == tar.TypeSymlink {
			h.Linkname = f.text
		} else {
			h.Size = int64(len(f.text))
		}
		kit.Must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte(f.text))
			kit.Must(t, err)
		}
	}
	kit.Must(t, w.Close())
	return out.Bytes()
}
