// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// matrix is the command line of lklrun matrix, as an ordinary user.
func (u *user) matrix(args ...string) kit.Result {
	u.t.Helper()
	return kit.Run(u.t, 2*time.Minute, u.command(u.bin+"/lklrun", append([]string{"matrix"}, args...)...))
}

// matrixReport is the output of lklrun matrix -o json.
type matrixReport struct {
	OK, Stopped bool
	Results     []string
	Cells       []struct {
		Vars map[string]string
		Runs []struct {
			OK     bool
			Error  string
			Values map[string]string
			Folder string
		}
	}
}

func (u *user) report(text string) (m matrixReport) {
	u.t.Helper()
	kit.Must(u.t, json.Unmarshal([]byte(text), &m))
	return m
}

// gone removes the results, and checks that nothing else remains.
func (u *user) gone(before *kit.Inventory) {
	u.t.Helper()
	folders, err := filepath.Glob(filepath.Join(u.folder, "*"))
	kit.Must(u.t, err)
	for _, f := range folders {
		if strings.HasSuffix(f, ".matrix") || strings.HasSuffix(f, "/mine") {
			kit.Must(u.t, os.RemoveAll(f))
		}
	}
	before.Settles(15 * time.Second)
}

// TestMatrixScenarios runs the built-in scenarios: MPTCP in both directions, and two
// congestion controls.
func TestMatrixScenarios(t *testing.T) {
	kit.Need(t, "python3")
	u := newUser(t)
	before := kit.Take(t)
	r := u.matrix("--stack", "mptcp", "--var", "direction=down,up", "--var", "size=8000000", "mptcp")
	if r.Status != 0 || !regexp.MustCompile(`(?m)^DIRECTION +RUNS +BYTES +PAUSE +TIME +JOINS\ndown +ok +right +\d+\.\d\ds +\d+\.\ds +[1-9]\d*\nup +ok +right `).MatchString(r.Stdout) {
		t.Errorf("%v", r)
	}
	if n := strings.Count(r.Stderr, "\n"); n != 2 || !strings.Contains(r.Stderr, "lklrun: 2/2 direction=up: ok, ") {
		t.Errorf("the progress: %s", r.Stderr)
	}

	r = u.matrix("-q", "-o", "json", "--var", "cc=cubic,bbr", "--var", "size=500000", "--var", "loss=0%", "-n", "2", "goodput")
	m := u.report(r.Stdout)
	if r.Status != 0 || r.Stderr != "" || !m.OK || len(m.Cells) != 2 || strings.Join(m.Results, " ") != "goodput pause retransmitted" {
		t.Fatalf("%v", r)
	}
	for _, c := range m.Cells {
		if len(c.Runs) != 2 || c.Runs[1].Values["retransmitted"] == "" || !strings.HasSuffix(c.Runs[1].Values["goodput"], "Mbit/s") {
			t.Errorf("%+v", c)
		}
	}
	u.gone(before)
}

// TestMatrixNoticesFailures checks that the scenario mptcp notices wrong bytes, a stream
// that ends early or stalls, and a connection without MPTCP, and that other cells still
// run.
func TestMatrixNoticesFailures(t *testing.T) {
	kit.Need(t, "python3")
	u := newUser(t)
	before := kit.Take(t)
	if out := kit.OK(t, kit.Limit, u.command(u.bin+"/lklrun", "matrix", "--copy", "mine", "mptcp")); out != "mine/mptcp.json\n" {
		t.Errorf("--copy: %q", out)
	}
	for _, c := range []struct{ old, new, directions, says string }{
		{"pending += block", "pending += block.replace(b'\\0', b'\\1')", "down,up", `wrong bytes from offset \d+ on, of 200000$`},
		{"conn.sendall(pending)", "conn.sendall(pending[:-9])", "down,up", `the stream ended after 199991 of 200000 bytes$`},
		{"conn.sendall(pending)", "time.sleep(60)", "down", `stalled after 196608 of 200000 bytes: TimeoutError timed out, `},
	} {
		kit.OK(t, kit.Limit, u.command(u.bin+"/lklrun", "matrix", "--copy", "broken", "mptcp"))
		script := filepath.Join(u.folder, "broken/transfer.py")
		text := kit.ReadFile(t, script)
		changed := strings.Replace(strings.Replace(text, c.old, c.new, 1), "LIMIT = 30", "LIMIT = 2", 1)
		if strings.Count(text, c.old) != 1 {
			t.Fatalf("transfer.py has no %q", c.old)
		}
		kit.WriteFile(t, script, changed)
		r := u.matrix("-q", "--var", "size=200000", "--var", "direction="+c.directions, "broken/mptcp.json")
		for n, direction := range strings.Split(c.directions, ",") {
			says := fmt.Sprintf(`(?m)direction=%s: step 1 \(client: .* its output is in mptcp.matrix/%d/step-1.log: %s`, direction, n+1, c.says)
			if r.Status != 1 || !strings.Contains(r.Stderr, " failed\n") || !regexp.MustCompile(says).MatchString(r.Stdout) {
				t.Errorf("%s: %v", c.new, r)
			}
		}
		kit.Must(t, os.RemoveAll(filepath.Join(u.folder, "broken")))
	}
	r := u.matrix("-q", "-o", "json", "--stack", "mptcp,vanilla", "--var", "server=mptcp", "--var", "size=200000", "mptcp")
	if r.Status != 2 || !strings.Contains(r.Stderr, "--var server=mptcp: given twice") {
		t.Errorf("%v", r)
	}
	r = u.matrix("-q", "-o", "json", "--var", "client=vanilla,mptcp", "--var", "size=200000", "mptcp")
	m := u.report(r.Stdout)
	if r.Status != 1 || m.OK || len(m.Cells) != 2 || m.Cells[0].Runs[0].OK || !m.Cells[1].Runs[0].OK {
		t.Fatalf("%v", r)
	}
	if why := m.Cells[0].Runs[0].Error; !strings.HasSuffix(why, ": the connection is plain TCP") {
		t.Errorf("a client without MPTCP: %s", why)
	}
	u.gone(before)
}

// TestMatrixUsage checks that a wrong command line is one line, before anything starts.
func TestMatrixUsage(t *testing.T) {
	u := newUser(t)
	file := filepath.Join(u.folder, "f.json")
	const lab = `{"vars": {"loss": "1%"}, "wires": {"a": {"loss": "${loss}"}}, "nodes": {"x": {"wires": ["a"]}, "y": {"wires": ["a"]}}, "steps": [{"wait": "1s"}]}`
	kit.WriteFile(t, file, lab)
	kit.WriteFile(t, filepath.Join(u.folder, "none.json"), strings.ReplaceAll(strings.Replace(lab, `"vars": {"loss": "1%"}, `, "", 1), "${loss}", "1%"))
	kit.WriteFile(t, filepath.Join(u.folder, "steps.json"), strings.Replace(lab, `, "steps": [{"wait": "1s"}]`, "", 1))
	before := kit.Take(t)
	for _, c := range []struct{ args, says string }{
		{"", `0 arguments; expected one topology file or scenario`},
		{"nosuch", `nosuch: no such file or directory`},
		{"mptpc.json", `mptpc.json: no such file or directory`},
		{"--stack mptpc,mptcp mptcp", `no stack "mptpc"; did you mean mptcp\?`},
		{"--stack mptcp f.json", `--stack: f.json has no variable client, server, stack; use --var`},
		{"--stack host,mptcp mptcp", `a node cannot use the host's kernel`},
		{"--var loss f.json", `--var "loss"; expected NAME=VALUE`},
		{"--var loss=1%, f.json", `--var "loss=1%,"; expected NAME=VALUE`},
		{"--var los=1% f.json", `f.json:1: vars: no variable "los"; did you mean loss\?`},
		{"--var loss=1%,x f.json", `f.json:1: wires.a.loss: "x"`},
		{"--var loss=1%,1% f.json", `--var loss=1%: given twice`},
		{"-n 0 f.json", `-n 0; expected a number from 1 to 10000`},
		{"-n 9999 --var loss=1%,2% f.json", `more than 10000 runs`},
		{"none.json", `none.json: the file has no variables`},
		{"steps.json", `steps.json: the file has no steps`},
		{"--copy x f.json", `--copy: "f.json" is not a built-in scenario; expected goodput or mptcp`},
	} {
		kit.OneLine(t, u.matrix(strings.Fields(c.args)...), 2, c.says)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("run", "--var", "los=1%", "f.json")), 2, `no variable "los"; did you mean loss\?`)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("up", "--var", "loss=1%")), 2, `--var: requires a topology file`)
	if out := kit.OK(t, kit.Limit, u.lab("run", "--explain", "--var", "loss=7%", "f.json")); !strings.Contains(out, "loss 7%") {
		t.Errorf("%s", out)
	}
	before.Settles(5 * time.Second)
}

// TestMatrixInterrupted checks that a signal ends the current run, that the earlier ones
// are reported, and that nothing remains.
func TestMatrixInterrupted(t *testing.T) {
	u := newUser(t)
	kit.WriteFile(t, filepath.Join(u.folder, "f.json"), `{
		"vars": {"time": "1s"}, "nodes": {"x": {"wires": ["a"]}, "y": {"wires": ["a"]}},
		"steps": [{"on": "x", "run": "echo t=${time}", "report": "t"}, {"on": "x", "run": "exec sleep ${time}"}]}`)
	before := kit.Take(t)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		log := filepath.Join(u.folder, "f.matrix/2/step-1.log")
		_ = os.Remove(log) // the first time, there is none
		p := kit.Start(t, u.command(u.bin+"/lklrun", "matrix", "-q", "--var", "time=0.1,59", "f.json"))
		kit.WaitFor(t, "the second run", 2*time.Minute, func() bool {
			text, _ := os.ReadFile(log) // it does not exist at first
			return string(text) == "t=59\n" || !p.Running()
		})
		p.Signal(sig)
		r := p.Wait(kit.Limit)
		if sig != unix.SIGKILL && (r.Status != 1 || !regexp.MustCompile(`(?m)^0\.1 +ok +0\.1\n$`).MatchString(r.Stdout) || r.Stderr != "lklrun: interrupted before all runs were done\n") {
			t.Errorf("%v: %v", sig, r)
		}
		u.gone(before)
	}
}
