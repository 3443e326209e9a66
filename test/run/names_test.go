// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/names.py
var namesProgram string

// TestNamesWithoutFile checks that programs resolve names by --dns on a system without
// /etc/resolv.conf, such as Android. C libraries, Go and bionic then query port 53 of the
// loopback address.
func TestNamesWithoutFile(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	s.Server.Dnsmasq(t, map[string]string{"www.test": kit.ServerAddr})
	kit.OwnEtc(t)
	kit.Must(t, os.RemoveAll("/etc/resolv.conf"), os.WriteFile("/etc/nsswitch.conf", []byte("hosts: dns\n"), 0o644))
	for _, p := range []struct {
		name, want string
		engines    []string
		args       []string
	}{
		{"glibc", kit.ServerAddr + " ", []string{"supervise", "preload"}, []string{"getent", "ahostsv4", "www.test"}},
		{"Go, static", kit.ServerAddr + "\n", []string{"supervise"}, []string{kit.Probe(), "lookup", "www.test"}},
		{"all addresses", "udp 0.0.0.0: 10.73.0.1\nudp 127.0.0.1: 10.73.0.1\nudp ::: 10.73.0.1\nudp ::1: 10.73.0.1\ntcp 127.0.0.1: 10.73.0.1\ntcp ::1: 10.73.0.1\n",
			[]string{"supervise", "preload"}, []string{"/usr/bin/python3", "-c", namesProgram, "www.test"}},
	} {
		for _, engine := range p.engines {
			t.Run(p.name+"/"+engine, func(t *testing.T) {
				before := kit.Take(t, s.Server)
				args := append([]string{"--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--dns", kit.ServerAddr, "--"}, p.args...)
				r := kit.Run(t, kit.Limit, kit.Lklrun(args...))
				if r.Status != 0 || !strings.HasPrefix(r.Stdout, p.want) || r.Stderr != "" {
					t.Errorf("%v\nwant: %s", r, p.want)
				}
				before.Same()
			})
		}
	}
	t.Run("no answer", func(t *testing.T) {
		r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "-q", "--if", s.TapIf(), "--dns", kit.StackAddr, "--", "/usr/bin/python3", "-c", namesProgram, "www.test"))
		if r.Status != 1 || !strings.Contains(r.Stderr, "server failure") {
			t.Errorf("%v", r)
		}
	})
	// An ordinary user who cannot create namespaces sees the host's file. Its servers on
	// the loopback are lklrun's.
	t.Run("no namespaces", func(t *testing.T) {
		kit.Must(t, os.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.53\n"), 0o644))
		cmd := exec.Command("sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`,
			"sh", bin+"/lklrun", "--name", kit.NewName(), "--if", "user", "--dns", kit.ServerAddr, "--", "getent", "ahostsv4", "www.test")
		cmd.SysProcAttr = kit.InUserNamespace()
		r := kit.Run(t, kit.Limit, cmd)
		if r.Status != 0 || !strings.HasPrefix(r.Stdout, kit.ServerAddr+" ") || !strings.Contains(r.Stderr, "cannot create a network namespace") {
			t.Errorf("%v", r)
		}
	})
}

// TestNamesWithFile checks that a program with a resolv.conf finds port 53 free.
func TestNamesWithFile(t *testing.T) {
	s := kit.NewSite(t)
	if _, err := os.Stat("/etc/resolv.conf"); err != nil {
		kit.OwnEtc(t)
		kit.Must(t, os.WriteFile("/etc/resolv.conf", []byte("nameserver 192.0.2.1\n"), 0o644))
	}
	for _, engine := range []string{"supervise", "preload"} {
		const bind = `import socket; [socket.socket(socket.AF_INET, t).bind(("0.0.0.0", 53)) for t in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]`
		kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--dns", kit.ServerAddr, "--", "/usr/bin/python3", "-c", bind))
	}
}

// TestAddHost checks that names of --add-host come before the host's, for an ordinary
// user and for both engines.
func TestAddHost(t *testing.T) {
	kit.PublicBin(t)
	host, err := os.ReadFile("/etc/hosts")
	kit.Must(t, err)
	for _, engine := range []string{"supervise", "preload"} {
		cmd := kit.AsUser(kit.Lklrun("-q", "--name", kit.NewName(), "--engine", engine, "--if", "user",
			"--add-host", "server=192.0.2.1", "--add-host", "localhost=192.0.2.2", "--", "sh", "-c", "getent ahostsv4 server; cat /etc/hosts"), "")
		out := kit.OK(t, kit.Limit, cmd)
		for _, want := range []string{"192.0.2.1 ", "\n192.0.2.1\tserver\n192.0.2.2\tlocalhost\n" + string(host)} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", engine, want, out)
			}
		}
	}
}
