// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// PacketFields returns fields of the packets in a capture, as tshark reads them. Each
// packet has one value per field; several values of one field are separated by commas. A
// file that ends in the middle of a block is an error unless it is still being written.
func PacketFields(t *testing.T, growing bool, file string, fields ...string) [][]string {
	t.Helper()
	Need(t, "tshark")
	// A capture also contains drops, resets and retransmissions, as journal entries.
	args := []string{"-n", "-r", file, "-Y", "not systemd_journal", "-T", "fields"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.Command("tshark", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && !growing {
		t.Fatalf("tshark -r %s: %v\n%s", file, err, errs.String())
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// A Tcpdump is a running tcpdump that listens already.
type Tcpdump struct {
	t    *testing.T
	Proc *Proc
}

// StartTcpdump starts a command line of tcpdump and waits until it listens.
func StartTcpdump(t *testing.T, cmd *exec.Cmd) *Tcpdump {
	t.Helper()
	c := &Tcpdump{t, Start(t, cmd)}
	if !Within(Limit, func() bool {
		_, errs := c.Proc.Output()
		return strings.Contains(errs, "listening on ") || !c.Proc.Running()
	}) || !c.Proc.Running() {
		_, errs := c.Proc.Output()
		t.Fatalf("tcpdump does not listen: %s", errs)
	}
	return c
}

// Until waits for n relevant lines. It returns all lines that tcpdump printed until then.
func (c *Tcpdump) Until(n int) []string {
	c.t.Helper()
	ok := Within(Limit, func() bool {
		out, _ := c.Proc.Output()
		return len(Lines(out)) >= n
	})
	c.Proc.Signal(syscall.SIGINT)
	r := c.Proc.Wait(Limit)
	if !ok || r.Status != 0 {
		c.t.Fatalf("want %d packets: %v", n, r)
	}
	return Lines(r.Stdout)
}
