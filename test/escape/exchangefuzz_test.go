// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// The host's device whose address no target may learn.
const (
	exchangeDevice = "exchange0"
	exchangeMAC    = "02:00:5e:10:20:30"
)

// exchangeWho are the users of a run. "bare" is a user on a host without user
// namespaces, where only the filter separates the target from the host's network.
var exchangeWho = []string{"root", "user", "bare"}

// An exchanger is a run that exchanges descriptors, memory and instructions during calls,
// with its surroundings.
type exchanger struct {
	dir, port string
	heard     atomic.Pointer[string]
}

// newExchanger starts the listener and the accomplice on the host.
func newExchanger(t *testing.T) *exchanger {
	t.Helper()
	e := &exchanger{dir: kit.Dir(t)}
	kit.Must(t, os.Chmod(e.dir, 0o777))
	kit.Host.Run(t, "install", "-m", "755", filepath.Join(kit.Root(), "build", "csrc", "tests", "exchange"), filepath.Join(e.dir, "exchange"))
	l := kit.Host.Listen(t, "127.0.0.1:0")
	e.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	go e.listen(l)
	cmd := exec.Command(filepath.Join(e.dir, "exchange"), "outside")
	cmd.Env = append(os.Environ(), e.env()...)
	in, err := cmd.StdinPipe() // the accomplice ends when it is closed
	kit.Must(t, err)
	t.Cleanup(func() { in.Close() })
	outside := kit.Start(t, cmd)
	kit.WaitFor(t, "the accomplice", kit.Limit, func() bool {
		out, _ := outside.Output()
		return out == "ready\n"
	})
	return e
}

// env returns the variables of the program.
func (e *exchanger) env() []string {
	return []string{"EXCHANGE_OUTSIDE=" + filepath.Join(e.dir, "outside.sock"), "EXCHANGE_PORT=" + e.port,
		"EXCHANGE_DEVICE=" + exchangeDevice, "EXCHANGE_MAC=" + exchangeMAC}
}

// listen records data, and connections other than the accomplice's, which is the first.
func (e *exchanger) listen(l net.Listener) {
	record := func(what string) { e.heard.CompareAndSwap(nil, &what) }
	for n := 0; ; n++ {
		c, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		if n > 0 {
			record("a connection")
		}
		go func() {
			defer c.Close()
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				record("data: " + line)
			}
		}()
	}
}

// command returns the command line of the run.
func (e *exchanger) command(t *testing.T, who, engine string, seconds int, seed string, kinds []string) *exec.Cmd {
	args := []string{filepath.Join(kit.PublicBin(t), "lklrun"), "-q", "--engine", engine, "--", filepath.Join(e.dir, "exchange"), strconv.Itoa(seconds), seed}
	args = append(args, kinds...)
	if who == "bare" {
		args = append([]string{"sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all --reuid=1 --regid=1 --clear-groups "$@"`, "sh"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	switch who {
	case "user":
		kit.AsUser(cmd, "")
	case "bare":
		cmd.SysProcAttr = kit.InUserNamespace()
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, e.env()...)
	return cmd
}

// check runs the program, checks that nothing has left the run, and returns the result.
func (e *exchanger) check(t *testing.T, cmd *exec.Cmd, seconds int) kit.Result {
	t.Helper()
	r := kit.Run(t, time.Duration(seconds)*time.Second+kit.Limit, cmd)
	t.Log(strings.TrimSpace(r.Stdout))
	if r.Status != 0 || !strings.Contains(r.Stdout, "calls ") || strings.Contains(r.Stdout, "escaped") {
		t.Errorf("%v", r)
	}
	if heard := e.heard.Load(); heard != nil {
		t.Errorf("the host heard %s", *heard)
	}
	return r
}

// exchangeHost gives the host the device.
func exchangeHost(t *testing.T) {
	kit.Need(t, "ip", "setpriv", kit.Bin("lklrun"))
	kit.Veth(t, kit.Host, exchangeDevice, kit.NewNetns(t, "peer"), "peer0")
	kit.Host.Run(t, "ip", "link", "set", exchangeDevice, "address", exchangeMAC)
}

// TestSecondFinding01Instruction lets another thread replace the instruction with which
// lklhost makes a traced thread execute calls; or rseq and syscall user dispatch lead the
// thread elsewhere. An endless loop ends after its first instruction. Another thread also
// replaces the address in memory to which the thread connects for a descriptor, or executes
// a program while the first thread of its process is in a call.
func TestSecondFinding01Instruction(t *testing.T) {
	exchangeHost(t)
	for _, who := range exchangeWho {
		t.Run(who, func(t *testing.T) {
			t.Parallel() // each waits for its time to pass
			e := newExchanger(t)
			for _, try := range []struct{ kind, lacks, killed string }{
				{"instructions", "", "executed another instruction"},
				{"loop", "", "executed another instruction"},
				{"channel", "", ""},
				{"channel", "pidfd-getfd", ""}, // as on kernels before 5.6
				{"rseq", "", "(executed another instruction|made another system call)"},
				{"dispatch", "", "got a signal"},
				{"exec", "", ""},
			} {
				cmd := e.command(t, who, "trace", 3, "1", []string{try.kind})
				cmd.Env = append(cmd.Env, "LKLRUN_TEST_LACKS="+try.lacks)
				r := e.check(t, cmd, 3)
				if try.killed != "" && !regexp.MustCompile(try.killed+" while lklhost executed a system call in it").MatchString(r.Stderr) {
					t.Errorf("%s: no process was killed: %v", try.kind, r)
				}
				if try.kind == "exec" && strings.Contains(r.Stdout, "executed 0") {
					t.Errorf("no thread executed a program: %v", r)
				}
			}
		})
	}
}

// TestExchangeFuzz exchanges everything with both engines, for FUZZ_SECONDS each.
func TestExchangeFuzz(t *testing.T) {
	exchangeHost(t)
	seconds, seed := 10, fmt.Sprint(time.Now().UnixNano())
	if s := os.Getenv("FUZZ_SECONDS"); s != "" {
		var err error
		seconds, err = strconv.Atoi(s)
		kit.Must(t, err)
	}
	if s := os.Getenv("FUZZ_SEED"); s != "" {
		seed = s
	}
	t.Log("FUZZ_SEED=" + seed)
	for _, engine := range []string{"supervise", "trace"} {
		for _, who := range exchangeWho {
			t.Run(who+"/"+engine, func(t *testing.T) {
				t.Parallel() // each waits for its time to pass
				e := newExchanger(t)
				kinds := []string{"memory", "instructions", "descriptors", "channel", "rseq", "dispatch", "exec", "shared-exec", "vfork", "signals", "filter"}
				r := e.check(t, e.command(t, who, engine, seconds, seed, kinds), seconds)
				// A busy machine makes at least 150 a second; leftover exchangers let few through.
				var calls int
				if _, err := fmt.Sscanf(r.Stdout, "calls %d", &calls); err != nil || calls < 5*seconds {
					t.Errorf("only %d calls in %d s (%v)", calls, seconds, err)
				}
			})
		}
	}
}
