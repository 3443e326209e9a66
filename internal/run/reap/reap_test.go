// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

// KillDescendants finds and kills orphans below this process. It does not kill
// children that existed before.
func TestKillDescendants(t *testing.T) {
	kit.Need(t, "setsid")
	before := exec.Command("sleep", "1000")
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = before.Process.Kill() // fails only if the process has ended
		_ = before.Wait()         // fails because the process was killed
	}()
	preexisting, err := Children()
	if err != nil || !preexisting[before.Process.Pid] {
		t.Fatalf("%v, %v", preexisting, err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command("sh", "-c", "sleep 1001 & setsid sh -c 'sleep 1002 & sleep 1003 & echo ready; wait' & wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil { // its children become ours
		t.Fatal(err)
	}
	_ = cmd.Wait() // fails because the process was killed
	below, err := scan(preexisting)
	if err != nil || len(below) != 4 {
		t.Errorf("below us: %v, %v; want three sleeps and a shell", below, err)
	}
	if _, ok := childrenOf(os.Getpid()); !ok {
		t.Log("this kernel does not list children")
	} else if walked := walk(preexisting); len(walked) != len(below) {
		t.Errorf("below us: %v by their lists of children, %v by a scan", walked, below)
	}
	if err := KillDescendants(preexisting); err != nil {
		t.Error(err)
	}
	if below, err = scan(preexisting); err != nil || len(below) != 0 {
		t.Errorf("left: %v, %v", below, err)
	}
	if err := before.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the preexisting child: %v", err)
	}
}
