// SPDX-License-Identifier: Apache-2.0

package capture

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// A captureSite is a stack on a tap and an iperf3 server behind it, in namespaces
// of their own:
//
//	stack eth0 10.77.1.2 ─ tap0 ─ br0 ─ v0 ─── s0 10.77.1.1
type captureSite struct {
	*testing.T
	host, server *kit.Netns
	name, dir    string
	target       *kit.Proc
}

func newCaptureSite(t *testing.T, engine string, args ...string) *captureSite {
	t.Helper()
	return newCaptureSiteWith(t, engine, nil, args...)
}

// newCaptureSiteWith is newCaptureSite with further flags for lklrun.
func newCaptureSiteWith(t *testing.T, engine string, flags []string, args ...string) *captureSite {
	t.Helper()
	kit.Need(t, "ip", "iperf3", "tshark", "capinfos", "tcpdump", "ethtool", kit.Bin("lklrun"), kit.Bin("lklctl"), kit.Bin("lklhost"))
	s := &captureSite{
		T: t, host: kit.NewNetns(t, "captured"), server: kit.NewNetns(t, "server"),
		name: kit.NewName(), dir: kit.Dir(t),
	}
	kit.Veth(t, s.host, "v0", s.server, "s0")
	s.host.Tap(t, "tap0")
	s.host.Bridge(t, "br0", "v0", "tap0")
	s.server.Addr(t, "s0", "10.77.1.1/24")
	s.server.Iperf3(t)
	cmd := append([]string{
		kit.Bin("lklrun"), "--name", s.name, "--engine", engine, "--stack", "vanilla", "--if", "tap:tap0,ip=10.77.1.2/24",
	}, slices.Concat(flags, []string{"--"}, args)...)
	s.target = kit.Start(t, s.host.Command(cmd...))
	kit.WaitFor(t, "the instance", kit.Limit, func() bool {
		runs := []string{"exec", "--", "true"}
		if engine == "preload" {
			runs = []string{"cat", "/proc/net/packet"}
		}
		r := kit.Run(t, kit.Limit, s.ctl(runs...))
		return r.Status == 0 || !s.target.Running()
	})
	return s
}

// ctl is a command line of lklctl for the instance.
func (s *captureSite) ctl(args ...string) *exec.Cmd {
	return exec.Command(kit.Bin("lklctl"), append([]string{"--name", s.name}, args...)...)
}

// moves makes the stack send this many bytes to the server.
func (s *captureSite) moves(bytes string) {
	s.Helper()
	kit.OK(s, kit.Limit, s.ctl("exec", "--", "iperf3", "-c", "10.77.1.1", "-n", bytes))
}

// frames returns the number of frames that eth0 has counted.
func (s *captureSite) frames() uint64 {
	s.Helper()
	return s.count("rx_packets") + s.count("tx_packets")
}

// count returns one of eth0's own counters.
func (s *captureSite) count(name string) uint64 {
	s.Helper()
	text := kit.OK(s, kit.Limit, s.ctl("cat", "/sys/class/net/eth0/statistics/"+name))
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// sockets returns the number of packet sockets in the stack.
func (s *captureSite) sockets() int {
	s.Helper()
	return len(kit.Lines(kit.OK(s, kit.Limit, s.ctl("cat", "/proc/net/packet")))) - 1
}

// captures starts a capture and returns when the capture receives packets.
func (s *captureSite) captures(args ...string) *kit.Proc {
	s.Helper()
	p := kit.Start(s, s.ctl(append([]string{"capture"}, args...)...))
	kit.WaitFor(s, "the capture", kit.Limit, func() bool {
		_, errs := p.Output()
		return strings.Contains(errs, "capturing on") || !p.Running()
	})
	return p
}

var captureSummary = regexp.MustCompile(`lklctl: (\d+) packets captured, (\d+) received by filter, (\d+) dropped by the stack\n`)

// ends stops a capture with Ctrl-C and returns its counts.
func (s *captureSite) ends(p *kit.Proc) (captured, received, dropped uint64) {
	s.Helper()
	p.Signal(syscall.SIGINT)
	r := p.Wait(kit.Limit)
	m := captureSummary.FindStringSubmatch(r.Stderr)
	if r.Status != 0 || m == nil {
		s.Fatalf("the capture: %v", r)
	}
	for i, n := range []*uint64{&captured, &received, &dropped} {
		*n, _ = strconv.ParseUint(m[i+1], 10, 64)
	}
	return captured, received, dropped
}

// tshark reads a file. It must not print messages of its own.
func (s *captureSite) tshark(file string, args ...string) []string {
	s.Helper()
	r := kit.Run(s, kit.Limit, exec.Command("tshark", append([]string{"-n", "-r", file}, args...)...))
	said := strings.ReplaceAll(r.Stderr, "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if r.Status != 0 || said != "" {
		s.Fatalf("tshark -r %s: %v", file, r)
	}
	return kit.Lines(r.Stdout)
}

// TestCaptureCounts checks that the captured and the dropped packets together equal the
// interface's own count. It uses one reader that keeps up, and one that is stopped for a
// while and loses most packets. In both cases the transfer must succeed. A killed reader
// leaves nothing in the stack.
func TestCaptureCounts(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "supervise", "sleep", "1000")
	// GRO joins frames before a packet socket sees them.
	kit.OK(t, kit.Limit, s.ctl("exec", "--", "ethtool", "-K", "eth0", "gro", "off"))
	for _, stopped := range []bool{false, true} {
		file := filepath.Join(s.dir, fmt.Sprintf("%v.pcapng", stopped))
		least := s.frames()
		args := []string{"-i", "eth0", "-s", "128", "-w", file}
		if stopped {
			args = append(args, "-B", "64")
		}
		p := s.captures(args...)
		began := s.frames()
		if stopped {
			kit.Pause(t, p.Pid(), kit.Limit)
		}
		s.moves("40M")
		if stopped {
			p.Signal(syscall.SIGCONT)
		}
		ended := s.frames()
		captured, received, dropped := s.ends(p)
		most := s.frames()
		if captured+dropped != received || received < ended-began || received > most-least {
			t.Errorf("stopped %v: %d captured, %d dropped, %d received; the interface: %d to %d", stopped, captured, dropped, received, ended-began, most-least)
		}
		if (dropped > 0) != stopped && stopped {
			t.Errorf("a stopped reader: nothing dropped of %d", received)
		}
		if got := len(s.tshark(file, "-Y", "not systemd_journal", "-T", "fields", "-e", "frame.number")); uint64(got) != captured {
			t.Errorf("%d packets in the file, %d captured", got, captured)
		}
		info := kit.OK(t, kit.Limit, exec.Command("capinfos", file))
		for _, want := range []string{
			"Name = eth0", "Capture length = 128", "Time precision = nanoseconds (9)", "Number of stat entries = 1",
			"Capture application: lklctl capture", "Encapsulation = Ethernet",
		} {
			if !strings.Contains(info, want) {
				t.Errorf("capinfos does not say %q:\n%s", want, info)
			}
		}
	}
	p := s.captures("-w", "/dev/null")
	if s.sockets() == 0 {
		t.Error("a capture without a packet socket")
	}
	p.Signal(syscall.SIGKILL)
	p.Wait(kit.Limit)
	kit.WaitFor(t, "the end of a killed capture's sockets", kit.Limit, func() bool { return s.sockets() == 0 })
}

// TestCaptureAsTcpdump checks that the unmodified tcpdump on the same stack sees the
// same packets.
func TestCaptureAsTcpdump(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "supervise", "sleep", "1000")
	ours, theirs := filepath.Join(s.dir, "ours.pcapng"), filepath.Join(s.dir, "theirs.pcap")
	const filter = "tcp port 5201"
	other := kit.StartTcpdump(t, s.ctl("exec", "--", "tcpdump", "-i", "eth0", "-U", "-w", theirs, filter))
	p := s.captures("-i", "eth0", "-w", ours, filter)
	s.moves("200K")
	captured, received, dropped := s.ends(p)
	if dropped != 0 || captured != received {
		t.Errorf("%d captured, %d received, %d dropped", captured, received, dropped)
	}
	fields := []string{"-T", "fields", "-e", "ip.src", "-e", "tcp.srcport", "-e", "tcp.dstport", "-e", "tcp.seq_raw", "-e", "tcp.ack_raw", "-e", "tcp.len", "-e", "tcp.flags"}
	// Both see all packets, but perhaps in a different order: tcpdump gets them through a
	// mirror.
	want := slices.Sorted(slices.Values(s.tshark(ours, fields...)))
	kit.WaitFor(t, "tcpdump's packets", kit.Limit, func() bool {
		_, err := exec.Command("tshark", "-r", theirs, "-c", fmt.Sprint(len(want)), "-w", "/dev/null").CombinedOutput()
		n, _ := exec.Command("tshark", "-r", theirs).Output()
		return err == nil && len(kit.Lines(string(n))) >= len(want)
	})
	other.Proc.Signal(syscall.SIGINT)
	other.Proc.Wait(kit.Limit)
	got := slices.Sorted(slices.Values(s.tshark(theirs, fields...)))
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("lklctl capture:\n%s\ntcpdump:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	owners := s.tshark(ours, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction")
	for _, o := range owners {
		if !regexp.MustCompile(`^eth0\t0x0000000[12]$`).MatchString(o) {
			t.Fatalf("interface and direction %q", o)
		}
	}
}

//go:embed testdata/on_tun.py
var onTun string

// TestPacketSocketOnTun checks that packet sockets see and send the packets of a device
// without a link layer, and that none goes round in a circle.
func TestPacketSocketOnTun(t *testing.T) {
	t.Parallel()
	kit.Need(t, "/usr/bin/python3", "ip", "ping")
	for _, engine := range []string{"supervise", "trace"} {
		got := kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--", "/usr/bin/python3", "-c", onTun))
		const want = `out type 8 from 10.9.0.1 hatype 65534
in type 0 from 10.9.0.2 hatype 65534
ping 0
sent True
again None
renamed, sent True
`
		if got != want {
			t.Errorf("%s: %s", engine, got)
		}
	}
}

// TestCapturePreload captures packets of a kernel inside the program, also in the
// classic format and for all interfaces. Files are split as tcpdump splits them.
func TestCapturePreload(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "preload", "iperf3", "-c", "10.77.1.1", "-t", "1000", "-b", "200M")
	for _, name := range []string{"any.pcap", "eth0.pcapng"} {
		file := filepath.Join(s.dir, name)
		args := []string{"capture", "-c", "200", "-w", file, "tcp", "and", "port", "5201"}
		if name == "eth0.pcapng" {
			args = append([]string{"capture", "-i", "eth0"}, args[1:]...)
		}
		r := kit.Run(t, kit.Limit, s.ctl(args...))
		if r.Status != 0 || captureSummary.FindStringSubmatch(r.Stderr) == nil {
			t.Fatalf("%v", r)
		}
		if got := len(s.tshark(file, "-Y", "tcp.port == 5201")); got != 200 {
			t.Errorf("%s: %d packets", name, got)
		}
	}
	r := kit.Run(t, kit.Limit, s.ctl("capture", "-c", "400", "-C", "1", "-W", "3", "-w", filepath.Join(s.dir, "ring")))
	if r.Status != 0 {
		t.Fatalf("%v", r)
	}
	total := 0
	for _, file := range []string{"ring0", "ring1", "ring2"} {
		total += len(s.tshark(filepath.Join(s.dir, file)))
	}
	if total == 0 || total > 400 {
		t.Errorf("%d packets in the ring", total)
	}
}

// TestCaptureEnds checks that a capture of all interfaces includes interfaces that are
// added, and continues when an interface is removed. The capture ends with the instance,
// or on SIGTERM. In both cases its file is complete.
func TestCaptureEnds(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "supervise", "sleep", "1000")
	inside := func(args ...string) {
		kit.OK(t, kit.Limit, s.ctl(append([]string{"exec", "--"}, args...)...))
	}
	all, term := filepath.Join(s.dir, "all.pcapng"), filepath.Join(s.dir, "term.pcapng")
	p := s.captures("-U", "-w", all)
	q := s.captures("-w", term)
	inside("ip", "link", "add", "late0", "type", "dummy")
	inside("ip", "link", "set", "late0", "up")
	inside("ip", "addr", "add", "10.78.1.2/24", "dev", "late0")
	known := func() bool {
		out, _ := exec.Command("capinfos", all).Output()
		return strings.Contains(string(out), "Name = late0")
	}
	kit.WaitFor(t, "the new interface in the file", kit.Limit, known)
	// Add a static neighbour entry, so that no packet waits for address resolution.
	inside("ip", "neigh", "add", "10.78.1.1", "lladdr", "02:00:00:00:00:01", "dev", "late0")
	_ = kit.Run(t, kit.Limit, s.ctl("exec", "--", "ping", "-c", "1", "-W", "1", "10.78.1.1"))
	kit.WaitFor(t, "a packet on it", kit.Limit, func() bool {
		out, _ := exec.Command("tshark", "-n", "-r", all, "-Y", `frame.interface_name == "late0" && icmp`).Output()
		return len(kit.Lines(string(out))) > 0
	})
	inside("ip", "link", "del", "late0")
	inside("ping", "-c", "2", "-i", "0.2", "127.0.0.1")
	q.Signal(syscall.SIGTERM)
	if r := q.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("after SIGTERM: %v", r)
	}
	if len(s.tshark(term, "-Y", `frame.interface_name == "lo" && icmp`)) != 4 {
		t.Error("a capture that SIGTERM ended has not all packets of lo")
	}
	kit.OK(t, kit.Limit, s.ctl("stop"))
	if r := p.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stderr, "packets captured") {
		t.Errorf("after the instance's end: %v", r)
	}
	if got := s.tshark(all, "-Y", `frame.interface_name == "lo" && icmp`); len(got) != 4 {
		t.Errorf("a capture that the instance's end ended: %d packets of lo", len(got))
	}
}

// TestCaptureRefusals checks that wrong arguments are reported before anything is
// opened.
func TestCaptureRefusals(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "supervise", "sleep", "1000")
	file := filepath.Join(s.dir, "never")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tcp prt 80"}, "filter \"tcp prt 80\": can't parse filter expression: syntax error"},
		{[]string{"-i", "eth7"}, `no interface "eth7"; it has `},
		{[]string{"-Q", "up"}, `-Q "up"; expected in, out or inout`},
		{[]string{"-W", "3"}, "-W"},
		{[]string{"-w", "-", "-C", "1"}, "cannot split"},
		{[]string{"-w", filepath.Join(file, "file")}, "not a directory"},
	} {
		args := append([]string{"capture"}, c.args...)
		if c.args[0] != "-w" {
			args = append([]string{"capture", "-w", file}, c.args...)
		}
		if c.want == "not a directory" {
			kit.OK(t, kit.Limit, exec.Command("touch", file))
		}
		r := kit.Run(t, kit.Limit, s.ctl(args...))
		wantStatus := 2
		if c.want == "not a directory" {
			wantStatus = 1
		}
		if r.Status != wantStatus || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%q: %v\nwant status %d, %s", args, r, wantStatus, c.want)
		}
		if _, err := os.Stat(file); err == nil && wantStatus == 2 {
			t.Errorf("%q: a file was made", args)
		}
	}
	// A full disk is reported in one line, and the file is valid up to that point.
	r := kit.Run(t, kit.Limit, exec.Command("sh", "-c", fmt.Sprintf(`%s --name %s exec -- ping -c 400 -i 0.01 -q 127.0.0.1 >/dev/null & %[1]s --name %[2]s capture -U -i lo -w /dev/full; s=$?; wait; exit $s`, kit.Bin("lklctl"), s.name)))
	if r.Status != 1 || !strings.Contains(r.Stderr, "no space left on device") {
		t.Errorf("a full disk: %v", r)
	}
}

// TestCaptureUnread checks that a capture whose output nobody reads ends on SIGTERM: a full
// pipe, a named pipe without a reader, and one whose reader is stopped.
func TestCaptureUnread(t *testing.T) {
	t.Parallel()
	s := newCaptureSite(t, "supervise", "ping", "-f", "-q", "127.0.0.1")
	extcap := []string{"extcap", "--capture", "--extcap-interface", "lklrun-" + s.name + "-lo", "--fifo"}
	for name, args := range map[string][]string{
		"text": {"capture", "-i", "lo"}, "file": {"capture", "-qU", "-i", "lo", "-w", "-"},
		"named": {"capture", "-qU", "-i", "lo", "-w", "PIPE"}, "extcap": append(extcap, "PIPE"), "absent": append(extcap, "ABSENT"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := kit.Dir(t)
			kit.Must(t, syscall.Mkfifo(dir+"/PIPE", 0o600), syscall.Mkfifo(dir+"/ABSENT", 0o600))
			pipe, err := os.OpenFile(dir+"/PIPE", os.O_RDWR, 0)
			if err == nil {
				_, err = unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
			}
			kit.Must(t, err)
			defer pipe.Close()
			cmd := s.ctl(args...)
			cmd.Dir, cmd.Stdout = dir, pipe
			p := kit.Start(t, cmd)
			kit.WaitFor(t, "a write or an opening that blocks", kit.Limit, func() bool {
				fds := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLOUT}}
				room, err := unix.Poll(fds, 0)
				opens := exec.Command("grep", "-rq", "wait_for_partner", "--include=wchan", fmt.Sprintf("/proc/%d/task", p.Pid()))
				return err == nil && room == 0 || opens.Run() == nil
			})
			p.Signal(syscall.SIGTERM)
			// In "absent", the standard output has room.
			r := p.Wait(kit.Limit)
			if r.Signal != 0 || len(kit.Lines(r.Stderr)) > 1 || name == "absent" && strings.Contains(r.Stderr, "does not read") {
				t.Error(r)
			}
		})
	}
}
