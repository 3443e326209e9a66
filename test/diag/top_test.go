// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/lklrun/lklrun/test/kit/terminal"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/test/kit"
)

// topOn starts lklctl top on a terminal. The variables take precedence over inherited
// ones.
func topOn(t *testing.T, variables []string, args ...string) *terminal.Terminal {
	t.Helper()
	cmd := exec.Command(kit.Bin("lklctl"), append([]string{"top"}, args...)...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), variables...)
	return terminal.New(t, 80, 24, cmd)
}

// TestTop runs top on a terminal of 80x24, with a transfer over two paths and clients
// of servers.
func TestTop(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	top := topOn(t, nil, "-n", b.Instance, "-d", "0.2")

	// The screen shows both paths, with the subflow of each below the connection, and
	// graphs.
	rate := `[0-9.]+M`
	for _, want := range []string{
		`lklctl top: 1 instance, every 0.2 s +\d\d:\d\d:\d\d`,
		`> ` + b.Instance + ` +mptcp +[▁▂▃▄▅▆▇█]+ +\d+% +\d+% +` + `[0-9.]+[kM]? +` + rate,
		`eth0 +up +[0-9.]+[kM]? +` + rate + ` +\d+ +[▁▂▃▄▅▆▇█]+ 10\.74\.1\.2/24`,
		`eth1 +up +[0-9.]+[kM]? +` + rate + ` +\d+ +[▁▂▃▄▅▆▇█]+ 10\.74\.2\.2/24`,
		`python3 10\.74\.1\.1:` + b.port + ` +mptcp .* [▁▂▃▄▅▆▇█]+`,
		`[├└] eth0 10\.74\.1\.2:\d+ +[0-9.]+ms +\d+ .*` + rate,
		`[├└] eth1 10\.74\.2\.2:\d+ +[0-9.]+ms +\d+ .*` + rate,
		`redis`,
		`F1Help .*F10Quit`,
	} {
		re := regexp.MustCompile(want)
		top.Until(want, re.MatchString)
	}
	if os.Getenv("PICTURES") != "" {
		top.Until("full graphs", regexp.MustCompile(`eth0 .*[▁▂▃▄▅▆▇█]{20} 10\.74`).MatchString)
	}
	savePicture(top, t, "top.svg")
	for _, l := range strings.Split(top.Screen(), "\n") {
		if utf8.RuneCountInString(l) > 80 {
			t.Errorf("a line of more than 80 columns: %q", l)
		}
	}

	top.Press("\x1bOP") // F1
	top.Has("sort by another column", "Esc back")
	top.Press("q")
	top.Has("F10Quit")
	top.Press("l")
	top.Has("process python3, pid ", "bytes_received ")
	top.Press("\x1b[6~\x1b[6~") // PgDn
	top.Has("subflow eth1 10.74.2.2:", "rtt_us ", "cwnd ")
	top.Press("q")
	top.Press("\x1b[15~") // F5
	top.Until("no subflows", func(s string) bool { return strings.Contains(s, "F10Quit") && !strings.ContainsAny(s, "├└") })
	top.Press("t")
	top.Has("├")
	top.Press("\x1bOS") // F4
	top.Has("Filter: _")
	top.Press("redis\r")
	top.Until("what passes the filter", func(s string) bool {
		return strings.Contains(s, "filter: redis") && strings.Contains(s, "redis-ser") && !strings.Contains(s, "python3 10")
	})

	// top ends the connection only if the user confirms.
	redis := func() int { return strings.Count(b.ctl("netstat", "-t", "-H"), ":6379") }
	top.Press("k")
	top.Has("End redis-server", "? y/n")
	top.Press("n")
	top.Has("nothing was ended")
	top.Press("\x1b[20~") // F9
	top.Has("End redis-server", "? y/n")
	before := redis()
	top.Press("y")
	top.Has("ended: redis-server")
	kit.WaitFor(t, "a connection less", kit.Limit, func() bool { return redis() < before })

	top.Resize(60, 12)
	top.Until("a smaller picture", func(s string) bool {
		all := strings.Split(strings.TrimRight(s, "\n "), "\n")
		return len(all) == 12 && strings.HasPrefix(all[11], "F1Help")
	})
	top.Resize(80, 24)
	top.Press("+")
	top.Has("every 0.1 s")

	// When the instance ends, top must report it.
	b.ctl("stop")
	b.target.Wait(kit.Limit)
	top.Has("has ended")
	top.Press("q")
	top.Restored(0)
}

// TestTopEnds checks that the terminal is restored whichever way top ends, and that top
// sends only sequences that the terminal supports.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*terminal.Terminal){
		"q":       func(top *terminal.Terminal) { top.Press("q") },
		"Ctrl-C":  func(top *terminal.Terminal) { top.Press("\x03") },
		"SIGTERM": func(top *terminal.Terminal) { top.Proc.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(top *terminal.Terminal) { top.Proc.Signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topOn(t, []string{"TERM=vt100", "LC_ALL=C", "NO_COLOR=1"})
			top.Has("lklctl top:", "F10Quit")
			end(top)
			top.Restored(0)
			sent := top.Sent()
			if strings.ContainsAny(sent, "├└▁▂▃▄▅▆▇█") {
				t.Error("characters that the locale has not")
			}
			if colour := regexp.MustCompile(`\x1b\[(3[0-7]|9[0-7]|38|48)[;m]`).FindString(sent); colour != "" {
				t.Errorf("a colour, in spite of NO_COLOR: %q", colour)
			}
		})
	}
	for _, tt := range []struct {
		env, arg, want string
		status         int
	}{
		{"TERM=dumb", "--ascii", "--batch", 2},
		{"TERM=xterm", "-c=3", "-b", 2},
		{"TERM=xterm", "-d=0", "seconds", 2},
		{"TERM=xterm", "-n=no-such-run", "no-such-run", 3},
	} {
		top := topOn(t, []string{tt.env}, tt.arg)
		if r := top.Proc.Wait(kit.Limit); r.Status != tt.status || !kit.Within(kit.Limit, func() bool { return strings.Contains(top.Sent(), tt.want) }) || strings.Count(top.Sent(), "\n") != 1 {
			t.Errorf("%s top %s: %v, %q", tt.env, tt.arg, r, top.Sent())
		}
	}
}

// TestTopBatch checks the output as text and as JSON, with the kernel inside the
// program.
func TestTopBatch(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "preload")
	defer b.end()
	out := b.ctl("top", "-b", "-c", "2", "-d", "1")
	all := strings.Split(strings.TrimSpace(out), "\n\n")
	if len(all) != 2 {
		t.Fatalf("%d pictures:\n%s", len(all), out)
	}
	for _, l := range strings.Split(all[1], "\n") {
		if utf8.RuneCountInString(l) > 80 || strings.HasSuffix(l, " ") {
			t.Errorf("a line of more than 80 columns, or with blanks at its end: %q", l)
		}
	}
	for _, want := range []string{`preload`, `eth0 +up +[0-9.]+[kM]?`, `eth1 +up`, `nginx .* mptcp`, `eth1 10\.74\.2\.2:80`} {
		if !regexp.MustCompile(want).MatchString(all[1]) {
			t.Errorf("no %s in\n%s", want, all[1])
		}
	}
	var last live.Snapshot
	for _, l := range kit.Lines(b.ctl("top", "-o", "json", "-c", "2", "-d", "1")) {
		if err := json.Unmarshal([]byte(l), &last); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
	}
	if last.Instance.Name != b.Instance || last.Interval == 0 || last.CPU.Stack != nil || last.CPU.Target == nil || last.Totals.TxRate.N == 0 || last.Totals.RetransRate == nil || last.Totals.Subflows < 2 {
		t.Errorf("the last snapshot: %+v", last)
	}
}

// TestTopTroubled runs ten instances. One is stopped, one ends, the kernel of one panics,
// and one has its kernel inside the program. top must show the others as usual. The test
// runs alone, because top shows all instances.
func TestTopTroubled(t *testing.T) {
	const many = 10
	const stopped, ending, dying, inside = 1, 2, 3, 4
	names := make([]string, many)
	procs := make([]*kit.Proc, many)
	for i := range many {
		names[i] = fmt.Sprintf("top%d-%s", i, kit.NewName())
		engine := "supervise"
		if i == inside {
			engine = "preload"
		}
		procs[i] = kit.Start(t, kit.Lklrun("--name", names[i], "--engine", engine, "--if", "user", "--", "sleep", "1000"))
	}
	hosts := make([]int, many)
	for i := range many {
		kit.WaitFor(t, names[i], kit.Limit, func() bool {
			hosts[i] = hostPID(names[i])
			return hosts[i] != 0 || !procs[i].Running()
		})
	}
	top := topOn(t, nil, "-d", "0.5")
	mark := regexp.MustCompile(`(?m)^> (\S+)`)
	chosen := func() string {
		if m := mark.FindStringSubmatch(top.Screen()); m != nil {
			return m[1]
		}
		return ""
	}
	// choose selects an instance with Tab and waits for its line.
	choose := func(i int, line string) {
		t.Helper()
		for range 3 * many {
			was := chosen()
			if was == names[i] {
				break
			}
			top.Press("\t")
			kit.WaitFor(t, "the next instance", kit.Limit, func() bool { return chosen() != was })
		}
		top.Until(names[i]+" "+line, regexp.MustCompile(`> `+names[i]+` .*`+line).MatchString)
	}
	const well = `mptcp .*\d+% +\d+%`
	kit.WaitFor(t, "all of them", kit.Limit, func() bool { return strings.Contains(top.Screen(), fmt.Sprint(many, " instances")) })
	choose(inside, `mptcp .* - +\d+%`) // its stack has no CPU time of its own
	choose(stopped, well)
	kit.Pause(t, hosts[stopped], kit.Limit)
	choose(stopped, `no answer for \d`)
	choose(ending, well)
	kit.Lklctl(t, "-n", names[ending], "stop")
	procs[ending].Wait(kit.Limit)
	choose(ending, `has ended`)
	if err := syscall.Kill(hosts[stopped], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	choose(stopped, well)
	choose(dying, well)
	kit.Crash(t, &kit.Talker{T: t, Name: names[dying]})
	procs[dying].Wait(kit.Limit)
	choose(dying, `has (ended|died)`)
	choose(many-1, well)
	top.Press("q")
	top.Restored(0)
	for i := range many {
		if procs[i].Running() {
			kit.Lklctl(t, "-n", names[i], "stop")
			procs[i].Wait(kit.Limit)
		}
	}
}

// hostPID returns lklhost's pid of an instance whose program runs, or 0 if there is
// none yet.
func hostPID(name string) int {
	out, err := exec.Command(kit.Bin("lklctl"), "list", "-o", "json").Output()
	var all []struct {
		Name      string `json:"name"`
		HostPID   int    `json:"host_pid"`
		TargetPID int    `json:"target_pid"`
	}
	if err != nil || json.Unmarshal(out, &all) != nil {
		return 0
	}
	for _, i := range all {
		if i.Name == name && i.TargetPID != 0 {
			return i.HostPID
		}
	}
	return 0
}
