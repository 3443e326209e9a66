// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
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
		v := args[a.Index]
		return !map[string]bool{
			opEqual: v == a.Value, opNotEqual: v != a.Value, opMasked: v&a.Value == a.ValueTwo,
			"SCMP_CMP_LT": v < a.Value, "SCMP_CMP_LE": v <= a.Value, "SCMP_CMP_GT": v > a.Value, "SCMP_CMP_GE": v >= a.Value,
		}[a.Op]
	})
}

// decide returns the actions of all rules that match a call, or the default action.
func decide(all []rule, fallback rule, name string, args [6]uint64) (actions []string) {
	for _, r := range all {
		if slices.Contains(r.Names, name) && r.matches(args) && !slices.Contains(actions, r.Action) {
			actions = append(actions, r.Action)
		}
	}
	if len(actions) == 0 {
		return []string{fallback.Action}
	}
	return actions
}

// TestSecondFinding08Profiles makes random profiles, and checks for many arguments that the
// result permits and notifies only what each matching rule of the profile permits, and what
// it permits as our rules say: finding 8 of the second review.
func TestSecondFinding08Profiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []uint64{0, 1, 2, 9, 16, 38, 40, 1 << 32, 1<<32 | 1, unix.SIOCGIFADDR, unix.TIOCSTI, unix.SIOCOUTQ, 0x8b01, unix.MSG_FASTOPEN, unix.MSG_TRUNC, low32, math.MaxUint64}
	ops := []string{opEqual, opNotEqual, opMasked, "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_GT", "SCMP_CMP_GE"}
	actions := []string{actAllow, actAllow, "SCMP_ACT_LOG", actErrno, "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP"}
	names := []string{"socket", "ioctl", "sendto", "recvfrom", "connect", "socketpair", "request_key", "io_uring_setup"}
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	permitted, refused := 0, 0
	for range 300 {
		fallback := rule{Action: pick([]string{actAllow, actErrno, "SCMP_ACT_LOG"})}
		var profile []rule
		name := pick(names)
		for range random.IntN(4) {
			r := rule{Names: []string{name, "read"}, Action: pick(actions)}
			for _, index := range random.Perm(5)[:random.IntN(3)] {
				a := arg{Index: uint(index), Op: pick(ops), Value: values[random.IntN(len(values))]}
				if a.Op == opMasked {
					a.ValueTwo = values[random.IntN(len(values))] & a.Value
				}
				r.Args = append(r.Args, a)
			}
			profile = append(profile, r)
		}
		result, err := intersect(profile, rules(), fallback)
		if err != nil {
			refused++
			continue
		}
		for range 100 {
			var args [6]uint64
			for i := range args {
				args[i] = values[random.IntN(len(values))]
			}
			before, got := decide(profile, fallback, name, args), decide(result, fallback, name, args)
			open := !slices.ContainsFunc(before, func(action string) bool { return !permissive(rule{Action: action}) })
			ours := decide(rules()[name], rule{}, name, args)
			want := before
			if open && ours[0] != actAllow {
				want = ours
			}
			if slices.ContainsFunc(got, func(action string) bool {
				return !slices.Contains(want, action) || !open && permissive(rule{Action: action})
			}) {
				t.Fatalf("%s%x: %v, profile %v, ours %v\n%+v, else %s\n%+v", name, args, got, before, ours, profile, fallback.Action, result)
			}
			if open {
				permitted++
			}
		}
	}
	if permitted < 3000 || refused > 150 {
		t.Errorf("%d permitted calls, %d profiles refused", permitted, refused)
	}
	for what, profile := range map[string]string{
		"conditions on one argument": `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]}]}`,
		"a comparison":               `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "op": "x"}]}]}`,
		"notification":               `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}]}`,
		"notification by default":    `{"defaultAction": "SCMP_ACT_NOTIFY"}`,
	} {
		s := parsed(t, `{"linux": {"seccomp": `+profile+`}}`)
		if err := s.supervise("/sock"); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
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
	// listen is denied by default, and bind by a rule with the same action.
	want := map[string][]string{"read": {actAllow}, "connect": {actNotify}, "socket": {actAllow, actNotify}}
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
