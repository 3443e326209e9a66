// SPDX-License-Identifier: Apache-2.0

// Package terminal runs programs on a pseudo terminal.
package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// A Terminal runs a program on a pseudo terminal, and keeps track of the screen.
type Terminal struct {
	t      *testing.T
	master *os.File
	Slave  *os.File // stays open, so that the test can read its settings after the program has ended
	Before unix.Termios
	Proc   *kit.Proc

	mu   sync.Mutex
	vt   vt10x.Terminal
	rest []byte // the beginning of an incomplete sequence
	raw  strings.Builder
}

// New starts cmd on a terminal of the given size.
func New(t *testing.T, columns, rows int, cmd *exec.Cmd) *Terminal {
	t.Helper()
	master, slave := Open(t)
	term := &Terminal{t: t, master: master, Slave: slave, vt: vt10x.New(vt10x.WithSize(columns, rows))}
	t.Cleanup(func() { _ = slave.Close() })
	term.setSize(columns, rows)
	settings, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term.Before = *settings
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	term.Proc = kit.Start(t, cmd)
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

// Open opens a pseudo terminal.
func Open(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// sequence matches an escape sequence (ECMA-48, 5.4). private matches those that vt10x
// misinterprets (CSI > and similar: keyboards of other terminals).
var (
	sequence = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|[^\[])`)
	private  = regexp.MustCompile(`\x1b\[[<=>][0-?]*[ -/]*[@-~]`)
)

func (term *Terminal) show(b []byte) {
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

// Screen returns the content of the screen, line by line.
func (term *Terminal) Screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.vt.String()
}

// Draw calls f with the screen, which does not change meanwhile.
func (term *Terminal) Draw(f func(screen vt10x.View)) {
	term.mu.Lock()
	defer term.mu.Unlock()
	f(term.vt)
}

// Sent returns all bytes that the program wrote.
func (term *Terminal) Sent() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.raw.String()
}

// Until waits until the screen fulfils a condition.
func (term *Terminal) Until(what string, is func(screen string) bool) {
	term.t.Helper()
	if !kit.Within(kit.Limit, func() bool { return is(term.Screen()) || !term.Proc.Running() && !is(term.Screen()) }) || !is(term.Screen()) {
		term.t.Fatalf("%s: not on the screen\n%s", what, term.Screen())
	}
}

// Has waits for texts on the screen.
func (term *Terminal) Has(texts ...string) {
	term.t.Helper()
	term.Until(strings.Join(texts, ", "), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// Press types keys.
func (term *Terminal) Press(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *Terminal) setSize(columns, rows int) {
	term.t.Helper()
	size := &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		term.t.Fatal(err)
	}
}

// Resize changes the size of the terminal, which notifies the program.
func (term *Terminal) Resize(columns, rows int) {
	term.t.Helper()
	term.mu.Lock()
	term.vt.Resize(columns, rows)
	term.mu.Unlock()
	term.setSize(columns, rows)
}

// Restored waits until the program ends with the given status, and checks that the
// terminal is in its original state.
func (term *Terminal) Restored(status int) {
	term.t.Helper()
	if r := term.Proc.Wait(kit.Limit); r.Status != status {
		term.t.Errorf("%v, want status %d\n%s", r, status, term.Screen())
	}
	settings, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	if *settings != term.Before {
		term.t.Errorf("the terminal's settings were %+v, are %+v", term.Before, *settings)
	}
	const left, shown = "\x1b[?1049l", "\x1b[?25h" // xterm: leave the alternate screen; show the cursor
	if !kit.Within(kit.Limit, func() bool { return strings.Contains(term.Sent(), left) }) {
		term.t.Error("the other screen was not given back")
	}
	if sent := term.Sent(); strings.LastIndex(sent, shown) < strings.LastIndex(sent, "\x1b[?25l") {
		term.t.Error("the cursor is still hidden")
	}
}
