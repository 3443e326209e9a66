// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// profileFile is the default seccomp profile of podman and its relatives.
const profileFile = "/usr/share/containers/seccomp.json"

// A profile is a seccomp profile in the form of containers-common. Fields that
// runtime-spec also defines have the same names there.
type profile struct {
	DefaultAction   string `json:"defaultAction"`
	DefaultErrnoRet *uint  `json:"defaultErrnoRet"`
	Syscalls        []struct {
		Names              []string        `json:"names"`
		Action             string          `json:"action"`
		Args               json.RawMessage `json:"args"`
		ErrnoRet           *uint           `json:"errnoRet"`
		Includes, Excludes struct {
			Caps   []string `json:"caps"`
			Arches []string `json:"arches"`
		}
	} `json:"syscalls"`
}

// spec converts the profile for an x86-64 container without capabilities and without
// the named calls.
func (p *profile) spec(without ...string) map[string]any {
	var calls []map[string]any
	for _, s := range p.Syscalls {
		in, out := s.Includes, s.Excludes
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, "amd64") || slices.Contains(out.Arches, "amd64") {
			continue
		}
		names := slices.DeleteFunc(slices.Clone(s.Names), func(n string) bool { return slices.Contains(without, n) })
		if len(names) == 0 {
			continue
		}
		call := map[string]any{"names": names, "action": s.Action}
		if len(s.Args) > 2 {
			call["args"] = s.Args
		}
		if s.ErrnoRet != nil {
			call["errnoRet"] = *s.ErrnoRet
		}
		calls = append(calls, call)
	}
	spec := map[string]any{"defaultAction": p.DefaultAction, "architectures": []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"}, "syscalls": calls}
	if p.DefaultErrnoRet != nil {
		spec["defaultErrnoRet"] = *p.DefaultErrnoRet
	}
	return spec
}

// A bundle is an OCI bundle that contains the machine's own programs, read-only, and
// lklrun in /lklrun. Its container shares the tests' network.
type bundle struct {
	t       *testing.T
	dir     string
	profile profile
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	kit.Need(t, "crun", "unshare")
	b := &bundle{t: t, dir: kit.Dir(t)}
	text, err := os.ReadFile(profileFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b.profile); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(b.dir, "rootfs")
	for _, d := range []string{"proc", "dev", "sys", "tmp", "run", "usr", "etc", "lklrun"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// command is a container that runs args as uid, without capabilities and without some
// of the calls that the default profile allows. crun requires cgroups of version 2, so
// the container sees none of the machine's cgroups.
func (b *bundle) command(uid int, without []string, args ...string) *exec.Cmd {
	b.t.Helper()
	mount := func(kind, source, on string, options ...string) map[string]any {
		return map[string]any{"type": kind, "source": source, "destination": on, "options": options}
	}
	var namespaces []map[string]any
	for _, n := range []string{"pid", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, map[string]any{"type": n})
	}
	none := []string{}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]any{"uid": uid, "gid": uid}, "args": args, "cwd": "/", "noNewPrivileges": true,
			"env":          []string{"PATH=/lklrun:/usr/bin:/usr/sbin", "HOME=/tmp", "LANG=C.UTF-8"},
			"capabilities": map[string]any{"bounding": none, "effective": none, "permitted": none},
		},
		"root": map[string]any{"path": "rootfs", "readonly": true},
		"mounts": []any{
			mount("proc", "proc", "/proc"),
			mount("tmpfs", "tmpfs", "/dev", "nosuid", "mode=755"),
			mount("tmpfs", "tmpfs", "/run", "mode=755"),
			mount("tmpfs", "tmpfs", "/tmp", "mode=1777"),
			mount("bind", "/usr", "/usr", "rbind", "ro"),
			mount("bind", "/etc", "/etc", "rbind", "ro"),
			mount("bind", kit.PublicBin(b.t), "/lklrun", "rbind", "ro"),
		},
		"linux": map[string]any{"namespaces": namespaces, "seccomp": b.profile.spec(without...)},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o600); err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "sh", "-c",
		`mount -t cgroup2 none /sys/fs/cgroup && exec crun --root "$PWD/crun" --cgroup-manager=disabled run "c$$"`)
	cmd.Dir = b.dir
	cmd.Stdin = strings.NewReader("") // crun changes the owner of standard input, which would be /dev/null
	return cmd
}

// namespaceCalls are the calls that profiles older than containers-common's reserve for
// CAP_SYS_ADMIN.
var namespaceCalls = []string{"unshare", "setns", "mount", "umount", "umount2", "fsopen", "fsmount", "fsconfig", "fspick", "move_mount", "open_tree"}

const noNamespace = "cannot create a network namespace"

//go:embed testdata/container_work.py
var containerWork string

// TestContainer checks that a run works in a container with default settings and
// without capabilities. It uses a network namespace if the container can create one.
// Otherwise it uses the filter alone, and prints a line about it.
func TestContainer(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	s.Server.EchoUDP(t, kit.ServerAddr+":7")
	b := newBundle(t)
	// This server is in the container's own network. The target must not reach it.
	port := kit.Host.Listen(t, "127.0.0.1:0").Addr().(*net.TCPAddr).Port
	const want = `hello
(b'ping', ('` + kit.ServerAddr + `', 7))
b'pong'
b'own'
ECONNREFUSED EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT
EPROTONOSUPPORT
['eth0', 'lo']
b'' True 1
`
	for _, tt := range []struct {
		name    string
		uid     int
		without []string
		alone   bool // there is no namespace, only the filter
	}{
		{"root without capabilities", 0, nil, true},
		{"an ordinary user", 1000, nil, false},
		{"an ordinary user who makes no namespaces", 1000, namespaceCalls, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := *b
			b.t = t
			want := want
			if !tt.alone { // the filter allows calls that are harmless in an empty namespace
				want = strings.Replace(want, "EPROTONOSUPPORT", "None", 1)
				want = strings.Replace(want, "EAFNOSUPPORT", "None", 1) // packet sockets
			}
			cmd := b.command(tt.uid, tt.without, "lklrun", "--name", "test-run", "--", "/usr/bin/python3", "-c", containerWork, kit.ServerURL, kit.ServerAddr, fmt.Sprint(port))
			r := kit.Run(t, kit.Limit, cmd)
			if r.Status != 0 || r.Stdout != want {
				t.Errorf("%v\nwant %s", r, want)
			}
			if strings.Contains(r.Stderr, noNamespace) != tt.alone {
				t.Errorf("whether the filter is alone: %s", r.Stderr)
			}
		})
	}
}

// TestContainerForbids checks that lklrun names a call that it needs if the container's
// profile forbids it.
func TestContainerForbids(t *testing.T) {
	kit.NewSite(t)
	b := newBundle(t)
	for _, call := range []string{"pidfd_getfd", "process_vm_readv", "seccomp"} {
		r := kit.Run(t, kit.Limit, b.command(1000, []string{call}, "lklrun", "--engine", "supervise", "--", "true"))
		if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], call) {
			t.Errorf("without %s: %v", call, r)
		}
	}
}

// TestNamesOfOthers checks a run without a network namespace of its own. Other users on
// the host can see the names of its sockets, but cannot send messages to them.
func TestNamesOfOthers(t *testing.T) {
	kit.NewSite(t)
	kit.Need(t, "setpriv")
	bin := kit.PublicBin(t)
	cmd := exec.Command("sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`,
		"sh", filepath.Join(bin, "lklrun"), "--name", kit.NewName(), "--", "/usr/bin/python3", "-uc", `
import select, socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
l = socket.create_server(("127.0.0.1", 0))
print("ready"); input()
me = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); me.sendto(b"own", u.getsockname())
c = socket.create_connection(l.getsockname()); a, who = l.accept()
print(u.recv(99), who == c.getsockname(), select.select([u, l], [], [], 0)[0])`)
	cmd.SysProcAttr = kit.InUserNamespace()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := kit.Start(t, cmd)
	kit.WaitFor(t, "the target", kit.Limit, func() bool { out, _ := p.Output(); return out == "ready\n" || !p.Running() })
	names, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, line := range kit.Lines(string(names)) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(f[7], "lklrun") {
			continue
		}
		tried++
		name := f[7]
		for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
			// Run as another user, who may not enter the run directory.
			script := `import os, socket, sys
os.setgroups([]); os.setgid(2); os.setuid(2)
s = socket.socket(socket.AF_UNIX, int(sys.argv[1]))
s.settimeout(1)
try: s.connect(sys.argv[2].replace("@", "\0")); s.send(b"x" * 9)
except OSError as e: print(e)`
			kit.OK(t, kit.Limit, exec.Command("/usr/bin/python3", "-c", script, fmt.Sprint(kind), name))
		}
	}
	if tried < 3 {
		t.Errorf("only %d names seen:\n%s", tried, names)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(kit.Limit); r.Status != 0 || !strings.HasSuffix(r.Stdout, "b'own' True []\n") || !strings.Contains(r.Stderr, noNamespace) {
		t.Errorf("the target: %v", r)
	}
}
