// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Lklrun is a command line of bin/lklrun; "--" ends the flags.
func Lklrun(args ...string) *exec.Cmd {
	return exec.Command(Bin("lklrun"), args...)
}

// Lklctl runs a verb and returns its output. The verb must succeed, or find nothing to
// print in its JSON document.
func Lklctl(t *testing.T, args ...string) string {
	t.Helper()
	r := Run(t, Limit, exec.Command(Bin("lklctl"), args...))
	nothing := r.Status == 1 && r.Stderr == "" && json.Valid([]byte(r.Stdout))
	if r.Status != 0 && !nothing {
		t.Fatalf("lklctl %s: %v", strings.Join(args, " "), r)
	}
	return r.Stdout
}

// Forget deletes the record that a run in the background leaves at its end. The test
// fails if there is none.
func Forget(t *testing.T, name string) {
	t.Helper()
	Lklctl(t, "rm", name)
}

var runCount atomic.Int32

// NewName returns a fresh instance name.
func NewName() string { return fmt.Sprintf("t%d", runCount.Add(1)) }

// OneLine checks the output of a refused run: one line from lklrun that names the
// problem, and nothing on standard output.
func OneLine(t *testing.T, r Result, status int, names string) {
	t.Helper()
	if r.Status != status {
		t.Errorf("want status %d: %v", status, r)
	}
	if r.Stdout != "" {
		t.Errorf("standard output is the target's own: %q", r.Stdout)
	}
	said := Lines(r.Stderr)
	if len(said) != 1 || !regexp.MustCompile(names).MatchString(said[0]) || !strings.HasPrefix(said[0], "lklrun:") {
		t.Errorf("want one line of lklrun's about %s: %q", names, r.Stderr)
	}
}

// ShellStatus returns $? of a shell.
func ShellStatus(r Result) int {
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return r.Status
}

// ProcessOf returns the process id that lklctl list prints under key.
func ProcessOf(t *testing.T, k *Talker, key string) int {
	t.Helper()
	return ProcessIn(t, Lklctl(t, "-o", "json", "list"), k, key)
}

// ProcessIn returns the process id that is printed under key in text, an output of lklctl
// list.
func ProcessIn(t *testing.T, text string, k *Talker, key string) int {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i["name"] == k.Name {
			if pid, ok := i[key].(float64); ok && pid > 1 {
				return int(pid)
			}
		}
	}
	t.Fatalf("lklctl list does not tell %s of %s: %v", key, k.Name, list)
	return 0
}

// StackListens reports whether an instance has a socket that serves a port.
func StackListens(t *testing.T, name string, port int) bool {
	t.Helper()
	out, err := exec.Command(Bin("lklctl"), "-n", name, "-o", "json", "netstat").Output()
	if err != nil {
		return false // the instance does not exist yet
	}
	var sockets []struct {
		State string `json:"state"`
		Local string `json:"local"`
	}
	if err := json.Unmarshal(out, &sockets); err != nil {
		t.Fatalf("netstat: %v\n%s", err, out)
	}
	for _, x := range sockets {
		if (x.State == "LISTEN" || x.State == "UNCONN") && strings.HasSuffix(x.Local, fmt.Sprintf(":%d", port)) {
			return true
		}
	}
	return false
}

// Answers waits until a server that p runs answers url.
func Answers(t *testing.T, p *Proc, url string) {
	t.Helper()
	ok := Within(Limit, func() bool {
		return !p.Running() || exec.Command("curl", "-sf", "-m", "2", "-o", "/dev/null", url).Run() == nil
	})
	if out, errs := p.Output(); !ok || !p.Running() {
		t.Fatalf("%s is not answered\nstdout: %s\nstderr: %s", url, out, errs)
	}
}

// Setting returns a number from the environment, for longer runs.
func Setting(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: not a number", name, text)
	}
	return n
}

// Spread waits for a time that depends on i, so that a test hits different moments of a
// start. It does not wait for an event.
func Spread(i int) { time.Sleep(time.Duration(i) * 3 * time.Millisecond) }

// Must fails the test on the first error.
func Must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
