// SPDX-License-Identifier: Apache-2.0

package capture

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/internal/ui/extcap"
	"github.com/lklrun/lklrun/test/kit"
)

// TestTcpdump checks that `lklctl tcpdump` is the real tcpdump on the stack: its flags, its
// output, and its end. It also checks the verbs that name the instance.
func TestTcpdump(t *testing.T) {
	t.Parallel()
	kit.Need(t, "tcpdump", "ping")
	name, file := kit.NewName(), filepath.Join(kit.Dir(t), "trace.pcap")
	run := kit.Start(t, kit.Lklrun("-q", "--name", name, "--", "sleep", "600"))
	lklctl := func(args ...string) *exec.Cmd { return exec.Command(kit.Bin("lklctl"), args...) }
	kit.WaitFor(t, "the instance", kit.Limit, func() bool { return lklctl("exec", name, "--", "true").Run() == nil })
	if out := kit.OK(t, kit.Limit, lklctl("exec", name, "--", "sh", "-c", "echo $LKLRUN_NAME")); out != name+"\n" {
		t.Errorf("the name inside: %q", out)
	}
	// dump starts tcpdump, and pings as soon as it listens.
	dump := func(args ...string) *kit.Proc {
		t.Helper()
		p := kit.Start(t, lklctl(append([]string{"-n", name, "tcpdump"}, args...)...))
		kit.WaitFor(t, "tcpdump", kit.Limit, func() bool {
			_, said := p.Output()
			return strings.Contains(said, "listening on") || !p.Running()
		})
		kit.OK(t, kit.Limit, lklctl("-n", name, "ping", "-nc", "2", "-i", "0.2", "127.0.0.1"))
		return p
	}
	r := dump("-ni", "lo", "-c", "3", "-q", "icmp").Wait(kit.Limit)
	if r.Status != 0 || strings.Count(r.Stdout, "IP 127.0.0.1 > 127.0.0.1: ICMP echo") != 3 || !strings.Contains(r.Stderr, "3 packets captured") {
		t.Errorf("%v", r)
	}
	if r := dump("icmp[icmptype]", "=", "8", "-i", "any", "-c2", "-w", file).Wait(kit.Limit); r.Status != 0 || r.Stdout != "" {
		t.Errorf("%v", r)
	}
	if out := kit.Host.Run(t, "tcpdump", "-nr", file); strings.Count(out, "ICMP echo request") != 2 {
		t.Errorf("the file:\n%s", out)
	}
	// Ctrl-C ends the capture.
	p := dump("-li", "lo", "--immediate-mode", "icmp")
	kit.WaitFor(t, "the packets", kit.Limit, func() bool {
		printed, _ := p.Output()
		return strings.Count(printed, "ICMP echo") == 4
	})
	p.Signal(syscall.SIGINT)
	if r := p.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stderr, "4 packets captured") {
		t.Errorf("after Ctrl-C: %v", r)
	}
	if r := kit.Run(t, kit.Limit, lklctl("-n", name, "tcpdump", "-D")); !strings.HasPrefix(r.Stdout, "1.eth0 ") || !strings.Contains(r.Stdout, ".lo ") {
		t.Errorf("-D: %v", r)
	}
	if r := kit.Run(t, kit.Limit, lklctl("-n", name, "tcpdump", "-i", "lo", "-w", "/no/such/dir/file")); r.Status != 1 || !strings.Contains(r.Stderr, "/no/such/dir/file") {
		t.Errorf("an error of tcpdump: %v", r)
	}
	kit.OK(t, kit.Limit, lklctl("stop", name))
	run.Wait(kit.Limit)
}

//go:embed testdata/asks_often.py
var asksOften string

// TestExtcap checks that tshark lists the stacks, captures on them, and reports a wrong
// filter.
func TestExtcap(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "tshark", "mount")
	// tshark reads extcap programs from a single directory. The tests have a mount
	// namespace of their own.
	folder, err := extcap.Folder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kit.Host.Run(t, "mount", "-t", "tmpfs", "extcap", folder)
	t.Cleanup(func() { kit.Host.Run(t, "umount", folder) })
	if path := kit.Lklctl(t, "extcap", "--install"); path != folder+"/lklrun\n" {
		t.Fatalf("installed as %q, the folder is %q", path, folder)
	}

	names := []string{kit.NewName(), kit.NewName()}
	kit.Start(t, kit.Lklrun("--name", names[0], "--if", s.TapIf(), "--", "/usr/bin/python3", "-c", asksOften, kit.ServerAddr))
	kit.Start(t, kit.Lklrun("--name", names[1], "--", "/usr/bin/python3", "-c", asksOften, "192.168.127.254"))
	home := "HOME=" + kit.Dir(t)
	tshark := func(args ...string) *exec.Cmd {
		cmd := exec.Command("tshark", args...)
		cmd.Env = append(cmd.Environ(), home)
		return cmd
	}
	kit.WaitFor(t, "all in tshark -D", kit.Limit, func() bool {
		out := kit.Run(t, kit.Limit, tshark("-D")).Stdout
		for _, n := range names {
			for _, suffix := range []string{"", "-eth0", "-lo"} {
				if !strings.Contains(out, " lklrun-"+n+suffix+" (lklrun "+n+": ") {
					return false
				}
			}
		}
		return true
	})
	t.Run("interface", func(t *testing.T) {
		out := kit.OK(t, kit.Limit, tshark("-n", "-i", "lklrun-"+names[0]+"-eth0", "-f", "udp port 4000", "-c", "3", "-T", "fields", "-e", "udp.dstport", "-e", "frame.interface_description", "-e", "frame.packet_flags_direction"))
		if want := strings.Repeat("4000\tinstance "+names[0]+", eth0\t0x00000002\n", 3); out != want {
			t.Errorf("%q, want %q", out, want)
		}
	})
	// The order and the number of packets vary.
	reads := func(t *testing.T, iface, filter, field string, wants ...string) {
		t.Helper()
		p := kit.Start(t, tshark("-l", "-n", "-i", iface, "-f", filter, "-T", "fields", "-e", field))
		kit.WaitFor(t, strings.Join(wants, " and "), kit.Limit, func() bool {
			out, errs := p.Output()
			if !p.Running() {
				t.Fatalf("tshark has ended: %s%s", out, errs)
			}
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(out, want+"\n") })
		})
		p.Signal(syscall.SIGINT)
		p.Wait(kit.Limit)
	}
	t.Run("instance", func(t *testing.T) {
		reads(t, "lklrun-"+names[1], "tcp or udp", "frame.interface_name", "lo", "eth0")
	})
	t.Run("both", func(t *testing.T) {
		reads(t, "lklrun", "udp", "frame.interface_description", "instance "+names[0]+", eth0", "instance "+names[1]+", eth0")
	})
	t.Run("wrong filter", func(t *testing.T) {
		r := kit.Run(t, kit.Limit, tshark("-i", "lklrun-"+names[0]+"-eth0", "-f", "tcp prot 80", "-c", "1"))
		if r.Status == 0 || !strings.Contains(r.Stderr, `lklctl: filter "tcp prot 80": `) {
			t.Error(r)
		}
		// Wireshark runs this check while the user types; any output means that the
		// filter is wrong.
		for filter, wrong := range map[string]bool{"tcp port 80": false, "tcp prot 80": true, "": false} {
			out := kit.Lklctl(t, "extcap", "--extcap-interface", "lklrun-"+names[0], "--extcap-capture-filter", filter)
			if (out != "") != wrong {
				t.Errorf("%q: %q", filter, out)
			}
		}
	})
	t.Run("reader that goes", func(t *testing.T) {
		pipe := filepath.Join(kit.Dir(t), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		p := kit.Start(t, exec.Command(kit.Bin("lklctl"), "extcap", "--capture", "--extcap-interface", "lklrun-"+names[0]+"-eth0", "--extcap-capture-filter", "port 9", "--fifo", pipe))
		kit.OK(t, kit.Limit, exec.Command("head", "-c", "28", pipe)) // the section header, before any packet
		if r := p.Wait(kit.Limit); r.Status != 0 || r.Stderr != "" {
			t.Error(r)
		}
	})
}
