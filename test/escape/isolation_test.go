// SPDX-License-Identifier: Apache-2.0

package escape

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// isolated are the ways to run lklrun, with the capabilities that lklhost keeps in each
// case (csrc/host/isolation.c).
var isolated = []struct {
	who, engine string
	flags       []string
	user        bool // run by an ordinary user
	caps        uint64
}{
	{"root", "supervise", nil, false, capPtrace | capKill | capDACOverride},
	{"root", "preload", nil, false, capKill},
	{"root with --user", "supervise", []string{"--user", "nobody"}, false, 0},
	{"root with --user", "preload", []string{"--user", "nobody"}, false, 0},
	{"user", "supervise", nil, true, capPtrace},
	{"user", "preload", nil, true, 0},
}

// Bits of capabilities(7).
const (
	capDACOverride = 1 << 1
	capKill        = 1 << 5
	capPtrace      = 1 << 19
)

// statusFields returns the lines of /proc/PID/status that the table isolated covers.
func statusFields(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(Cap\w+|NoNewPrivs|Seccomp):\t(.*)$`).FindAllStringSubmatch(string(text), -1) {
		fields[m[1]] = m[2]
	}
	return fields
}

// noHostFiles checks that a process can access no file of the host except through
// /proc.
func noHostFiles(t *testing.T, pid int, root bool) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	names, err := os.ReadDir(proc + "root/")
	if err != nil || len(names) != 1 || names[0].Name() != "proc" {
		t.Errorf("its root directory has %v (%v)", names, err)
	}
	text, err := os.ReadFile(proc + "mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	mounts := kit.Lines(string(text))
	for _, m := range mounts {
		f := strings.Fields(m)
		own := strings.HasSuffix(m, "tmpfs lklrun rw,size=4k,mode=555") || strings.Contains(m, " tmpfs lklrun ")
		if f[4] != "/proc" && !strings.HasPrefix(f[4], "/proc/") && (f[4] != "/" || !own) {
			t.Errorf("a mount of the host's: %s", m)
		}
	}
	if root && (len(mounts) != 2 || !strings.HasSuffix(mounts[1], ",subset=pid")) {
		t.Errorf("its mounts:\n%s", text)
	}
	if _, err := os.Stat(proc + "root/proc/sys/kernel"); err == nil {
		t.Error("it has /proc/sys/kernel")
	}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if st, err := os.Stat(proc + "fd/" + fd.Name()); err == nil && st.IsDir() {
			t.Errorf("its descriptor %s is a directory", fd.Name())
		}
	}
}

// TestFinding15Privileges checks that lklhost and its helpers have dropped all privileges
// that they do not need while the target runs. A directory that lklrun passes to the
// target must not be open in lklhost.
func TestFinding15Privileges(t *testing.T) {
	bin := kit.PublicBin(t)
	for _, tt := range isolated {
		t.Run(tt.who+", "+tt.engine, func(t *testing.T) {
			s := kit.NewSite(t)
			dir, err := os.Open("/usr")
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			as := func(args ...string) *exec.Cmd {
				cmd := exec.Command(args[0], args[1:]...)
				cmd.ExtraFiles = []*os.File{dir}
				if tt.user {
					kit.AsUser(cmd, "")
				}
				return cmd
			}
			before := kit.Take(t, s.Server)
			k := s.TalkBy(func(args ...string) *exec.Cmd {
				return as(append([]string{bin + "/lklrun", "-q", "--engine", tt.engine}, args...)...)
			}, tt.flags...)
			if got := k.Say(`__import__("os").listdir(3) and socket.create_server(("127.0.0.1", 0)).getsockname()[0]`); got != "'127.0.0.1'" {
				t.Errorf("the target: %s", got)
			}
			pid := kit.ProcessIn(t, kit.OK(t, kit.Limit, as(bin+"/lklctl", "-o", "json", "list")), k, "host_pid")
			caps := fmt.Sprintf("%016x", tt.caps)
			want := map[string]string{"CapInh": fmt.Sprintf("%016x", 0), "CapPrm": caps, "CapEff": caps, "CapBnd": caps,
				"CapAmb": fmt.Sprintf("%016x", 0), "NoNewPrivs": "1", "Seccomp": "2"}
			if got := statusFields(t, pid); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("lklhost has\n%v, want\n%v", got, want)
			}
			noHostFiles(t, pid, !tt.user)
			if r := k.End(); r.Status != 0 || r.Stderr != "" {
				t.Errorf("the run: %v", r)
			}
			before.Same()
		})
	}
}

//go:embed testdata/reach.py
var reach string

//go:embed testdata/traceable.py
var traceable string

// TestFinding15UserNamespace checks that with --user, the target cannot access other
// processes of its user on the host.
func TestFinding15UserNamespace(t *testing.T) {
	kit.Need(t, "setpriv", "/usr/bin/python3")
	bin := kit.PublicBin(t)
	nobodys := func(args ...string) *exec.Cmd {
		return exec.Command("setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups"}, args...)...)
	}
	program := filepath.Join(kit.Dir(t), "reach.py")
	kit.WriteFile(t, program, reach)
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			other := kit.Start(t, nobodys("/usr/bin/python3", "-c", traceable))
			var at string
			kit.WaitFor(t, "the other process", kit.Limit, func() bool {
				out, _ := other.Output()
				at = strings.TrimSpace(out)
				return strings.HasSuffix(out, "\n")
			})
			args := []string{"/usr/bin/python3", program, strconv.Itoa(other.Pid()), at}
			attack := func(cmd *exec.Cmd) string {
				return strings.TrimSpace(kit.OK(t, kit.Limit, cmd))
			}
			const all = "process_vm_readv pidfd_getfd fd mem ptrace"
			if got := attack(nobodys(args...)); got != all {
				t.Fatalf("a process of the same user, outside, can do %q, want %q", got, all)
			}
			lklrun := append([]string{"-q", "--engine", engine, "--user", "nobody", "--name", kit.NewName(), "--"}, args...)
			if got := attack(exec.Command(bin+"/lklrun", lklrun...)); got != "" {
				t.Errorf("the target can do %q to it", got)
			}
			if engine == "supervise" {
				k := s.TalkBy(func(args ...string) *exec.Cmd {
					return exec.Command(bin+"/lklrun", append([]string{"-q", "--user", "nobody"}, args...)...)
				})
				k.Say("1")
				if got := attack(exec.Command(bin+"/lklctl", append([]string{"-n", k.Name, "exec"}, args...)...)); got != "" {
					t.Errorf("a program of lklctl exec can do %q to it", got)
				}
				// File owners are unchanged.
				if got := k.Say(`(lambda o: [o.stat(f).st_uid for f in ("/etc/passwd", "/proc/self/status")])(__import__("os"))`); got != "[0, 65534]" {
					t.Errorf("owners of files: %s", got)
				}
				k.End()
			}
			other.Signal(unix.SIGKILL)
			other.Wait(kit.Limit)
		})
	}
}

// TestFinding15NoUserNamespace checks --user on a host where no user namespace can be
// created. The run must work without one, and print a line about the consequences.
func TestFinding15NoUserNamespace(t *testing.T) {
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	cmd := exec.Command("sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"`, "sh",
		bin+"/lklrun", "--name", kit.NewName(), "--user", "nobody", "--", "id", "-u")
	cmd.SysProcAttr = kit.InUserNamespace()
	r := kit.Run(t, kit.Limit, cmd)
	if r.Status != 0 || r.Stdout != "65534\n" || strings.Count(r.Stderr, "shares a user namespace") != 1 {
		t.Error(r)
	}
}
