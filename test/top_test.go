// SPDX-License-Identifier: Apache-2.0

package test

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

	"github.com/lklrun/lklrun/internal/diag/live"
	testutil "github.com/lklrun/lklrun/test/kit"
)

// topOn starts lklctl top on a terminal; variables precede the inherited ones.
func topOn(t *testing.T, variables []string, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(testutil.Bin("lklctl"), append([]string{"top"}, args...)...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), variables...)
	return newTerminal(t, 80, 24, cmd)
}

// TestTop runs top on a terminal of 80x24, with a transfer over two paths and clients
// of servers.
func TestTop(t *testing.T) {
	t.Parallel()
	b := newBusy(t, "supervise")
	top := topOn(t, nil, "-n", b.name, "-d", "0.2")

	// Both paths, with the subflow of each below the connection, and graphs.
	rate := `[0-9.]+M`
	for _, want := range []string{
		`lklctl top: 1 instance, every 0.2 s +\d\d:\d\d:\d\d`,
		`> ` + b.name + ` +mptcp +[▁▂▃▄▅▆▇█]+ +\d+% +\d+% +` + `[0-9.]+[kM]? +` + rate,
		`eth0 +up +[0-9.]+[kM]? +` + rate + ` +\d+ +[▁▂▃▄▅▆▇█]+ 10\.74\.1\.2/24`,
		`eth1 +up +[0-9.]+[kM]? +` + rate + ` +\d+ +[▁▂▃▄▅▆▇█]+ 10\.74\.2\.2/24`,
		`python3 10\.74\.1\.1:` + b.port + ` +mptcp .* [▁▂▃▄▅▆▇█]+`,
		`[├└] eth0 10\.74\.1\.2:\d+ +[0-9.]+ms +\d+ .*` + rate,
		`[├└] eth1 10\.74\.2\.2:\d+ +[0-9.]+ms +\d+ .*` + rate,
		`redis`,
		`F1Help .*F10Quit`,
	} {
		re := regexp.MustCompile(want)
		top.until(want, re.MatchString)
	}
	if os.Getenv("PICTURES") != "" {
		top.until("full graphs", regexp.MustCompile(`eth0 .*[▁▂▃▄▅▆▇█]{20} 10\.74`).MatchString)
	}
	top.picture(t, "top.svg")
	for _, l := range strings.Split(top.screen(), "\n") {
		if utf8.RuneCountInString(l) > 80 {
			t.Errorf("a line of more than 80 columns: %q", l)
		}
	}

	top.press("\x1bOP") // F1
	top.has("sort by another column", "Esc back")
	top.press("q")
	top.has("F10Quit")
	top.press("l")
	top.has("process python3, pid ", "bytes_received ")
	top.press("\x1b[6~\x1b[6~") // PgDn
	top.has("subflow eth1 10.74.2.2:", "rtt_us ", "cwnd ")
	top.press("q")
	top.press("\x1b[15~") // F5
	top.until("no subflows", func(s string) bool { return strings.Contains(s, "F10Quit") && !strings.ContainsAny(s, "├└") })
	top.press("t")
	top.has("├")
	top.press("\x1bOS") // F4
	top.has("Filter: _")
	top.press("redis\r")
	top.until("what passes the filter", func(s string) bool {
		return strings.Contains(s, "filter: redis") && strings.Contains(s, "redis-ser") && !strings.Contains(s, "python3 10")
	})

	// The answer to the confirmation decides.
	redis := func() int { return strings.Count(b.ctl("netstat", "-t", "-H"), ":6379") }
	top.press("k")
	top.has("End redis-server", "? y/n")
	top.press("n")
	top.has("nothing was ended")
	top.press("\x1b[20~") // F9
	top.has("End redis-server", "? y/n")
	before := redis()
	top.press("y")
	top.has("ended: redis-server")
	testutil.WaitFor(t, "a connection less", limit, func() bool { return redis() < before })

	top.resize(60, 12)
	top.until("a smaller picture", func(s string) bool {
		all := strings.Split(strings.TrimRight(s, "\n "), "\n")
		return len(all) == 12 && strings.HasPrefix(all[11], "F1Help")
	})
	top.resize(80, 24)
	top.press("+")
	top.has("every 0.1 s")

	// When the instance ends, top says so.
	b.ctl("stop")
	b.target.Wait(limit)
	top.has("has ended")
	top.press("q")
	top.restored(0)
}

// TestTopEnds checks that the terminal is restored however top ends, and that top sends
// nothing that the terminal cannot show.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*terminal){
		"q":       func(top *terminal) { top.press("q") },
		"Ctrl-C":  func(top *terminal) { top.press("\x03") },
		"SIGTERM": func(top *terminal) { top.proc.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(top *terminal) { top.proc.Signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := topOn(t, []string{"TERM=vt100", "LC_ALL=C", "NO_COLOR=1"})
			top.has("lklctl top:", "F10Quit")
			end(top)
			top.restored(0)
			sent := top.sent()
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
		if r := top.proc.Wait(limit); r.Status != tt.status || !testutil.Within(limit, func() bool { return strings.Contains(top.sent(), tt.want) }) || strings.Count(top.sent(), "\n") != 1 {
			t.Errorf("%s top %s: %v, %q", tt.env, tt.arg, r, top.sent())
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
	for _, l := range lines(b.ctl("top", "-o", "json", "-c", "2", "-d", "1")) {
		if err := json.Unmarshal([]byte(l), &last); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
	}
	if last.Instance.Name != b.name || last.Interval == 0 || last.CPU.Stack != nil || last.CPU.Target == nil || last.Totals.TxRate.N == 0 || last.Totals.RetransRate == nil || last.Totals.Subflows < 2 {
		t.Errorf("the last snapshot: %+v", last)
	}
}

// TestTopTroubled runs ten instances. One is stopped, one ends, the kernel of one
// panics and one has its kernel inside the program; top must show the others as usual.
// It runs alone, because top shows all instances.
func TestTopTroubled(t *testing.T) {
	const many = 10
	const stopped, ending, dying, inside = 1, 2, 3, 4
	names := make([]string, many)
	procs := make([]*testutil.Proc, many)
	for i := range many {
		names[i] = fmt.Sprintf("top%d-%s", i, newName())
		engine := "supervise"
		if i == inside {
			engine = "preload"
		}
		procs[i] = testutil.Start(t, lklrun("--name", names[i], "--engine", engine, "--if", "user", "--", "sleep", "1000"))
	}
	hosts := make([]int, many)
	for i := range many {
		testutil.WaitFor(t, names[i], limit, func() bool {
			hosts[i] = hostPID(names[i])
			return hosts[i] != 0 || !procs[i].Running()
		})
	}
	top := topOn(t, nil, "-d", "0.5")
	mark := regexp.MustCompile(`(?m)^> (\S+)`)
	chosen := func() string {
		if m := mark.FindStringSubmatch(top.screen()); m != nil {
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
			top.press("\t")
			testutil.WaitFor(t, "the next instance", limit, func() bool { return chosen() != was })
		}
		top.until(names[i]+" "+line, regexp.MustCompile(`> `+names[i]+` .*`+line).MatchString)
	}
	const well = `mptcp .*\d+% +\d+%`
	testutil.WaitFor(t, "all of them", limit, func() bool { return strings.Contains(top.screen(), fmt.Sprint(many, " instances")) })
	choose(inside, `mptcp .* - +\d+%`) // its stack has no CPU time of its own
	choose(stopped, well)
	testutil.Pause(t, hosts[stopped], limit)
	choose(stopped, `no answer for \d`)
	choose(ending, well)
	lklctl(t, "-n", names[ending], "stop")
	procs[ending].Wait(limit)
	choose(ending, `has ended`)
	if err := syscall.Kill(hosts[stopped], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	choose(stopped, well)
	choose(dying, well)
	crash(t, &talker{t: t, name: names[dying]})
	procs[dying].Wait(limit)
	choose(dying, `has (ended|died)`)
	choose(many-1, well)
	top.press("q")
	top.restored(0)
	for i := range many {
		if procs[i].Running() {
			lklctl(t, "-n", names[i], "stop")
			procs[i].Wait(limit)
		}
	}
}

// hostPID returns lklhost's pid of an instance whose program runs, or 0 if there is
// none yet.
func hostPID(name string) int {
	out, err := exec.Command(testutil.Bin("lklctl"), "list", "-o", "json").Output()
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
