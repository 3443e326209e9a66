// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// known counts the values of a structure that are known.
func known(v any) (n, of int) {
	r := reflect.ValueOf(v).Elem()
	for i := range r.NumField() {
		if f, ok := r.Field(i).Interface().(Value); ok {
			of++
			if f.Known {
				n++
			}
		}
	}
	return n, of
}

// The structure of each kernel is decoded up to its length, and no further.
func TestDecodeByLength(t *testing.T) {
	full := make([]byte, 512)
	for i := range full {
		full[i] = 1 // no value that means "none"
	}
	full[5] = 0xff // tcpi_options: including window scaling
	last, all := 0, 0
	for n := range full {
		k, of := known(decodeTCPInfo(full[:n]))
		if k < last {
			t.Errorf("tcp_info of %d bytes tells less than a shorter one", n)
		}
		last, all = k, of
	}
	if last != all {
		t.Errorf("a whole tcp_info tells %d of %d values", last, all)
	}
	for n, want := range map[int]int{
		0: 0, 40: 9, // Linux 5.9
		44: 12, 80: 17, 84: 18, 96: 21,
	} {
		if k, _ := known(decodeMPTCPInfo(full[:n])); k != want {
			t.Errorf("mptcp_info of %d bytes tells %d values, want %d", n, k, want)
		}
	}
}

func TestDecodeTCPInfo(t *testing.T) {
	b := make([]byte, 240)
	binary.NativeEndian.PutUint32(b[68:], 10213)   // tcpi_rtt
	binary.NativeEndian.PutUint32(b[80:], 10)      // tcpi_snd_cwnd
	binary.NativeEndian.PutUint32(b[76:], 1<<31-1) // tcpi_snd_ssthresh
	binary.NativeEndian.PutUint64(b[120:], 84)     // tcpi_bytes_acked
	binary.NativeEndian.PutUint64(b[200:], 83)     // tcpi_bytes_sent
	i := decodeTCPInfo(b)
	if i.RTT != Known(10213) || i.Cwnd != Known(10) || i.BytesAcked != Known(84) || i.BytesSent != Known(83) || i.Ssthresh.Known {
		t.Errorf("%+v", i)
	}
	if i := decodeTCPInfo(b[:104]); i.BytesAcked.Known || !i.TotalRetrans.Known {
		t.Errorf("of an old kernel: %+v", i)
	}
}

// inetMessage is a struct inet_diag_msg with the attributes that fill adds.
func inetMessage(t testing.TB, fill func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	b := make([]byte, sizeInetMsg)
	b[0], b[1] = unix.AF_INET, byte(Established)
	binary.BigEndian.PutUint16(b[4:], 41022)
	binary.BigEndian.PutUint16(b[6:], 80)
	copy(b[8:], []byte{10, 1, 0, 2})
	copy(b[24:], []byte{10, 1, 0, 1})
	binary.NativeEndian.PutUint32(b[56:], 5)
	binary.NativeEndian.PutUint32(b[68:], 77)
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	attrs, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(b, attrs...)
}

func subflowMessage(t testing.TB) []byte {
	return inetMessage(t, func(ae *netlink.AttributeEncoder) {
		ae.String(attrCong, "bbr")
		ae.Bytes(attrInfo, make([]byte, 240))
		ae.Nested(attrULPInfo, func(ae *netlink.AttributeEncoder) error {
			ae.String(ulpName, "mptcp")
			ae.Nested(ulpMPTCP, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(1, 0xaaaa)
				ae.Uint32(2, 0xbbbb)
				ae.Uint32(8, uint32(FlagJoinLocal|FlagBackupRemote|1<<12))
				ae.Uint8(10, 2)
				return nil
			})
			return nil
		})
	})
}

func TestDecodeSubflow(t *testing.T) {
	s, err := decodeInet(TCP, subflowMessage(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.Local != netip.MustParseAddrPort("10.1.0.2:41022") || s.Remote != netip.MustParseAddrPort("10.1.0.1:80") ||
		s.RecvQ != Known(5) || s.Inode != 77 || s.Congestion != "bbr" || s.TCP == nil {
		t.Errorf("%+v", s)
	}
	f := s.Subflow
	if f == nil || f.RemoteToken != Known(0xaaaa) || f.Token != Known(0xbbbb) || f.ID != Known(2) || f.RemoteID.Known || !f.Flags.Backup() {
		t.Fatalf("%+v", f)
	}
	if diff := cmp.Diff([]string{"join-local", "backup-remote", "0x1000"}, f.Flags.Names()); diff != "" {
		t.Error(diff)
	}
	text, err := f.Flags.MarshalText()
	var back SubflowFlags
	if err != nil || back.UnmarshalText(text) != nil || back != f.Flags {
		t.Errorf("%s became %v", text, back)
	}
	tls := inetMessage(t, func(ae *netlink.AttributeEncoder) {
		ae.Nested(attrULPInfo, func(ae *netlink.AttributeEncoder) error { ae.String(ulpName, "tls"); return nil })
	})
	if s, err := decodeInet(TCP, tls); err != nil || s.Subflow != nil {
		t.Errorf("another ULP: %+v, %v", s.Subflow, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(subflowMessage(f))
	f.Add(make([]byte, sizeInetMsg))
	f.Add(make([]byte, 30))
	f.Add([]byte(pingLine))
	f.Fuzz(func(_ *testing.T, b []byte) {
		// None of these calls may panic.
		_, _ = decodeInet(TCP, b)
		_, _ = decodeInet(MPTCP, b)
		_, _ = decodeUnix(b)
		_, _ = decodePacket(b)
		_, _ = decodeNetlink(b)
		_, _ = parsePing(string(b), unix.AF_INET)
	})
}

func TestStates(t *testing.T) {
	for s := range State(20) {
		text, err := s.MarshalText()
		var back State
		if err != nil || back.UnmarshalText(text) != nil || back != s {
			t.Errorf("state %d is %s, which is %d", s, text, back)
		}
	}
	var s State
	if s.UnmarshalText([]byte("nonsense")) == nil {
		t.Error("a state that is none")
	}
}

// proc creates a directory like /proc with processes: pid, parent, name,
// descriptors.
func proc(t *testing.T, dir string, pid, stat, comm string, fds map[string]string) {
	t.Helper()
	p := filepath.Join(dir, pid)
	if err := os.MkdirAll(p+"/fd", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"stat": stat, "comm": comm + "\n"} {
		if err := os.WriteFile(filepath.Join(p, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for fd, link := range fds {
		if err := os.Symlink(link, filepath.Join(p, "fd", fd)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHolders(t *testing.T) {
	dir := t.TempDir()
	proc(t, dir, "1", "1 (init) S 0 1", "init", nil)
	proc(t, dir, "10", "10 (lklhost) S 1 10", "lklhost", map[string]string{"3": "socket:[500]"})
	proc(t, dir, "11", "11 (a) S 99 (b) S 10 11", "a) S 99 (b", map[string]string{"4": "socket:[500]", "3": "socket:[500]", "0": "/dev/null"})
	proc(t, dir, "12", "12 (child) S 11 12", "child", map[string]string{"3": "socket:[500]", "x": "socket:[7]", "5": "socket:[]"})
	proc(t, dir, "13", "13 (other) S 1 13", "other", map[string]string{"3": "socket:[500]"})
	pids := descendants(dir, 10)
	if diff := cmp.Diff([]int{11, 12}, pids); diff != "" {
		t.Fatalf("descendants:\n%s", diff)
	}
	want := map[uint64][]Process{500: {{11, "a) S 99 (b", []int{3, 4}}, {12, "child", []int{3}}}}
	if diff := cmp.Diff(want, holding(dir, pids)); diff != "" {
		t.Errorf("holders:\n%s", diff)
	}
}

// This process provides a real /proc.
func TestAttribute(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	sockets := []Socket{{Inode: 5}, {Inode: 6}, {Inode: 0}, {Inode: 8}}
	owners := []ctlproto.Owner{
		{StackIno: 5, CarrierIno: st.Ino, PID: 1, Comm: "maker"},
		{StackIno: 6, CarrierIno: 1, PID: 77, Comm: "gone"},
		{StackIno: 0, CarrierIno: st.Ino, PID: 1, Comm: "none"},
	}
	Attribute(sockets, owners, func([]uint64) map[uint64][]Process { return Holding(os.Getppid()) })
	if p := sockets[0].Processes; len(p) != 1 || p[0].PID != os.Getpid() || len(p[0].FDs) != 1 || p[0].FDs[0] != fd {
		t.Errorf("ours: %+v", p)
	}
	if diff := cmp.Diff([]Process{{PID: 77, Comm: "gone"}}, sockets[1].Processes); diff != "" {
		t.Errorf("whose holder cannot be seen:\n%s", diff)
	}
	if sockets[2].Processes != nil || sockets[3].Processes != nil {
		t.Errorf("nobody's: %+v", sockets[2:])
	}
}
