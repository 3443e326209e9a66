// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A Udhcpd is a running DHCP server of busybox.
type Udhcpd struct {
	*Proc
	leases string
}

// Leases lists the leases, one per line, like dumpleases(1); a released lease is
// "expired". The result is empty while the server writes the file.
func (u *Udhcpd) Leases(t testing.TB) string {
	t.Helper()
	u.Signal(syscall.SIGUSR1) // request to write the file; an earlier version may be read
	out, err := exec.Command("busybox", "dumpleases", "-f", u.leases).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// Udhcpd starts busybox's DHCP server on a device of the namespace, which has an address.
// The server assigns the addresses from first to last, for the given number of seconds.
// The lines in more are added to its configuration.
func (n *Netns) Udhcpd(t testing.TB, dev, first, last string, seconds int, more ...string) *Udhcpd {
	t.Helper()
	dir := Dir(t)
	leases := filepath.Join(dir, "leases")
	conf := fmt.Sprintf("start %s\nend %s\ninterface %s\nlease_file %s\npidfile %s/pid\nauto_time 0\nmin_lease 1\nopt lease %d\n%s\n",
		first, last, dev, leases, dir, seconds, strings.Join(more, "\n"))
	file := filepath.Join(dir, "udhcpd.conf")
	for name, text := range map[string]string{leases: "", file: conf} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := Start(t, n.Command("busybox", "udhcpd", "-f", "-a", "100", file))
	WaitFor(t, "udhcpd listens", ServeUp, func() bool { return n.Listening(t, "u", 67) })
	return &Udhcpd{p, leases}
}

// DnsmasqDHCP starts dnsmasq as a DHCP server and router on a device of the namespace;
// args are its arguments, such as --dhcp-range=.
func (n *Netns) DnsmasqDHCP(t testing.TB, dev string, args ...string) *Proc {
	t.Helper()
	dir := Dir(t)
	all := append([]string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--no-ping", "--dhcp-authoritative", "--dhcp-duid=40000,010203",
		"--interface=" + dev, "--bind-dynamic", "--except-interface=lo", "--dhcp-leasefile=" + dir + "/leases", "--pid-file=", "--user=root",
		"--log-dhcp", "--log-facility=-",
	}, args...)
	p := Start(t, n.Command(all...))
	WaitFor(t, "dnsmasq starts", ServeUp, func() bool {
		out, errs := p.Output()
		return strings.Contains(out+errs, "started, version")
	})
	return p
}
