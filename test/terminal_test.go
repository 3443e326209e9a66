// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	testutil "github.com/lklrun/lklrun/test/kit"
)

// A terminal runs a program on a pseudo terminal, and keeps track of the screen.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File // stays open, so that its settings can be read when the program has ended
	before unix.Termios
	proc   *testutil.Proc

	mu   sync.Mutex
	vt   vt10x.Terminal
	rest []byte // the beginning of an incomplete sequence
	raw  strings.Builder
}

// newTerminal starts cmd on a terminal of the given size.
func newTerminal(t *testing.T, columns, rows int, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, slave := pty(t)
	term := &terminal{t: t, master: master, slave: slave, vt: vt10x.New(vt10x.WithSize(columns, rows))}
	t.Cleanup(func() { _ = slave.Close() })
	term.setSize(columns, rows)
	settings, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term.before = *settings
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	term.proc = testutil.Start(t, cmd)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			term.show(buf[:n])
		}
	}()
	return term
}

// sequence matches an escape sequence (ECMA-48, 5.4). private matches those that vt10x
// misinterprets (CSI > and similar: keyboards of other terminals).
var (
	sequence = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|[^\[])`)
	private  = regexp.MustCompile(`\x1b\[[<=>][0-?]*[ -/]*[@-~]`)
)

func (term *terminal) show(b []byte) {
	term.mu.Lock()
	defer term.mu.Unlock()
	term.raw.Write(b)
	b = append(term.rest, b...)
	term.rest = nil
	if i := strings.LastIndexByte(string(b), 0x1b); i >= 0 && !sequence.Match(b[i:]) {
		term.rest = append([]byte{}, b[i:]...)
		b = b[:i]
	}
	_, _ = term.vt.Write(private.ReplaceAll(b, nil)) // it returns no errors
}

// screen returns the content of the screen, line by line.
func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.vt.String()
}

// draw calls f with the screen, which does not change meanwhile.
func (term *terminal) draw(f func(screen vt10x.View)) {
	term.mu.Lock()
	defer term.mu.Unlock()
	f(term.vt)
}

// sent returns all bytes that the program wrote.
func (term *terminal) sent() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// until waits until the screen fulfils a condition.
func (term *terminal) until(what string, is func(screen string) bool) {
	term.t.Helper()
	if !testutil.Within(limit, func() bool { return is(term.screen()) || !term.proc.Running() && !is(term.screen()) }) || !is(term.screen()) {
		term.t.Fatalf("%s: not on the screen\n%s", what, term.screen())
	}
}

// has waits for texts on the screen.
func (term *terminal) has(texts ...string) {
	term.t.Helper()
	term.until(strings.Join(texts, ", "), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// press types keys.
func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) setSize(columns, rows int) {
	term.t.Helper()
	size := &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		term.t.Fatal(err)
	}
}

// resize changes the size of the terminal, which notifies the program.
func (term *terminal) resize(columns, rows int) {
	term.t.Helper()
	term.mu.Lock()
	term.vt.Resize(columns, rows)
	term.mu.Unlock()
	term.setSize(columns, rows)
}

// restored waits until the program ends with a status, and checks that the terminal is
// as before.
func (term *terminal) restored(status int) {
	term.t.Helper()
	if r := term.proc.Wait(limit); r.Status != status {
		term.t.Errorf("%v, want status %d\n%s", r, status, term.screen())
	}
	settings, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	if *settings != term.before {
		term.t.Errorf("the terminal's settings were %+v, are %+v", term.before, *settings)
	}
	const left, shown = "\x1b[?1049l", "\x1b[?25h" // xterm: leave the alternate screen; show the cursor
	if !testutil.Within(limit, func() bool { return strings.Contains(term.sent(), left) }) {
		term.t.Error("the other screen was not given back")
	}
	if sent := term.sent(); strings.LastIndex(sent, shown) < strings.LastIndex(sent, "\x1b[?25l") {
		term.t.Error("the cursor is still hidden")
	}
}
