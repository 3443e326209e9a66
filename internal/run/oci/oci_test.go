// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// matches reports whether a filter rule applies to a call with these arguments.
func (r rule) matches(args [6]uint64) bool {
	return !slices.ContainsFunc(r.Args, func(a arg) bool {
		switch v := args[a.Index]; a.Op {
		case opEqual:
			return v != a.Value
		case opNotEqual:
			return v == a.Value
		default:
			return v&a.Value != a.ValueTwo
		}
	})
}

// Rules of one call with different actions never match the same arguments, and for all
// arguments there is an action.
func TestRules(t *testing.T) {
	all := rules()
	for _, c := range []struct {
		name   string
		args   [6]uint64
		action string
	}{
		{"socket", [6]uint64{unix.AF_UNIX}, actAllow},
		{"socket", [6]uint64{unix.AF_ALG}, actAllow},
		{"socket", [6]uint64{unix.AF_INET}, actNotify},
		{"socket", [6]uint64{unix.AF_VSOCK}, actNotify},
		{"socket", [6]uint64{1<<32 | unix.AF_UNIX}, actAllow},
		{"socket", [6]uint64{1<<32 | unix.AF_INET}, actNotify},
		{"socketpair", [6]uint64{unix.AF_TIPC}, actErrno},
		{"socketpair", [6]uint64{unix.AF_UNIX}, actAllow},
		{"sendto", [6]uint64{}, actAllow},
		{"sendto", [6]uint64{4: 1}, actNotify},
		{"sendto", [6]uint64{4: 1 << 40}, actNotify},
		{"sendto", [6]uint64{3: unix.MSG_FASTOPEN | 1}, actNotify},
		{"sendto", [6]uint64{3: unix.MSG_NOSIGNAL}, actAllow},
		{"recvfrom", [6]uint64{3: unix.MSG_ERRQUEUE}, actNotify},
		{"recvfrom", [6]uint64{3: unix.MSG_TRUNC}, actNotify},
		{"recvfrom", [6]uint64{3: unix.MSG_TRUNC | unix.MSG_ERRQUEUE}, actNotify},
		{"recvfrom", [6]uint64{3: unix.MSG_PEEK}, actAllow},
		{"ioctl", [6]uint64{1: unix.SIOCGIFADDR}, actNotify},
		{"ioctl", [6]uint64{1: 0x8b01}, actNotify},
		{"ioctl", [6]uint64{1: 0x8a01}, actAllow},
		{"ioctl", [6]uint64{1: unix.SIOCOUTQ}, actNotify},
		{"ioctl", [6]uint64{1: unix.SIOCINQ}, actAllow},
		{"ioctl", [6]uint64{1: unix.TCGETS}, actAllow},
		{"ioctl", [6]uint64{1: unix.TIOCSTI}, actErrno},
		{"ioctl", [6]uint64{1: 1<<32 | unix.TIOCSTI}, actErrno},
		{"request_key", [6]uint64{}, actAllow},
		{"request_key", [6]uint64{2: 1}, actErrno},
		{"io_uring_setup", [6]uint64{}, actErrno},
		{"connect", [6]uint64{3}, actNotify},
	} {
		got := map[string]bool{}
		for _, r := range all[c.name] {
			if r.matches(c.args) {
				got[r.Action] = true
			}
		}
		if len(got) != 1 || !got[c.action] {
			t.Errorf("%s%x: actions %v, want %s", c.name, c.args, slices.Collect(maps.Keys(got)), c.action)
		}
	}
	for name := range all {
		for bit := range 64 {
			for arg := range 5 {
				args, got := [6]uint64{}, map[string]bool{}
				args[arg] = 1 << bit
				for _, r := range all[name] {
					if r.matches(args) {
						got[r.Action] = true
					}
				}
				if len(got) != 1 {
					t.Errorf("%s%x: actions %v, want one", name, args, got)
				}
			}
		}
	}
}

// parsed returns a configuration that is read from text.
func parsed(t *testing.T, text string) *spec {
	t.Helper()
	path := filepath.Join(t.TempDir(), specFile)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSupervise(t *testing.T) {
	s := parsed(t, `{"big": 18446744073709551615, "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86"],
		"syscalls": [{"names": ["read", "connect", "socket"], "action": "SCMP_ACT_ALLOW"}, {"names": ["bind"], "action": "SCMP_ACT_ERRNO"}]}}}`)
	if err := s.supervise("/sock"); err != nil {
		t.Skip(err) // another architecture
	}
	if err := s.write(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Big   json.Number
		Linux struct {
			Seccomp struct {
				ListenerPath string
				Flags        []string
				Syscalls     []rule
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Linux.Seccomp
	if got.Big != "18446744073709551615" || p.ListenerPath != "/sock" || !slices.Equal(p.Flags, []string{flagKillable}) {
		t.Errorf("got %+v", got)
	}
	actions := map[string][]string{}
	for _, r := range p.Syscalls {
		for _, n := range r.Names {
			if !slices.Contains(actions[n], r.Action) {
				actions[n] = append(actions[n], r.Action)
			}
		}
	}
	// listen is denied by default, and bind by a rule.
	want := map[string][]string{"read": {actAllow}, "bind": {actErrno}, "connect": {actNotify}, "socket": {actAllow, actNotify}}
	if d := cmp.Diff(want, actions); d != "" {
		t.Error(d)
	}
	if err := s.supervise("/other"); err == nil || !strings.Contains(err.Error(), "/sock") {
		t.Errorf("a second listener: %v", err)
	}
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		notes string
		want  *request
		err   string
	}{
		{`{"other": "1"}`, nil, ""},
		{`{"lklrun.dev/stack": "bbr"}`, &request{stack: "bbr"}, ""},
		{`{"lklrun.dev/stack": "bbr", "lklrun.dev/sysctl.net.ipv4.tcp_ecn": "1"}`,
			&request{stack: "bbr", sysctls: []string{"net.ipv4.tcp_ecn=1"}}, ""},
		{`{"lklrun.dev/stack": ""}`, nil, "expected the name of a stack"},
		{`{"lklrun.dev/stack": "../x"}`, nil, "expected the name of a stack"},
		{`{"lklrun.dev/stack": "host"}`, nil, "expected the name of a stack"},
		{`{"lklrun.dev/stak": "bbr"}`, nil, "lklrun.dev/stak: unknown"},
		{`{"lklrun.dev/sysctl.a": "1"}`, nil, "lklrun.dev/stack: missing"},
	} {
		got, err := parsed(t, `{"annotations": `+c.notes+`}`).request(fromContainerd)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.notes, err, c.err)
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(request{})); c.err == "" && d != "" {
			t.Errorf("%s: %s", c.notes, d)
		}
	}
}

func TestSysctls(t *testing.T) {
	s := parsed(t, `{"annotations": {"lklrun.dev/stack": "bbr", "lklrun.dev/sysctl.net.a": "2"}, "linux": {"sysctl": {"net.a": "1", "net.b": "0 0", "kernel.c": "3"}}}`)
	r, err := s.request(fromContainerd)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"net.a=1", "net.b=0 0", "net.a=2"}, r.sysctls); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]any{"kernel.c": "3"}, section(section(s.all, "linux"), "sysctl")); d != "" {
		t.Error(d)
	}
}

func TestCommandLine(t *testing.T) {
	c := parse(strings.Fields("--systemd-cgroup --log-format=json --log /l create --bundle /b --pid-file /p ID"))
	if c.verb != "create" || c.id != "ID" || c.spec() != "/b/config.json" || c.options["--log"] != "/l" || c.options["--log-format"] != "json" {
		t.Errorf("got %+v", c)
	}
	if c := parse(strings.Fields("exec --pid-file /p --process /q --detach ID sh")); c.verb != "exec" || c.id != "ID" {
		t.Errorf("got %+v", c)
	}
	if c := parse([]string{"delete", "--force", "a"}); c.verb != "delete" || c.id != "a" || c.spec() != "config.json" {
		t.Errorf("got %+v", c)
	}
}
