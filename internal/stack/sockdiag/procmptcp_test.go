// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// A kernel with MPTCP v0.9x on a little-endian machine wrote this text.
const procMPTCP = `  sl  loc_tok  rem_tok  v6 local_address                         remote_address                        st ns tx_queue rx_queue inode
   0: 2D0B85BA 39F8CCC5  0 6601A8C0:E89F                         2DE66882:0050                         01 02 00000010:00000003 21895
   1: 85BA 0000  1 000001FD000000000000000002000000:A046 000001FD000000000000000001000000:01BB 02 01 00000000:00000000 0
   2: FFFFFFFF FFFFFFFF  0 0100007F:0050                         0100007F:C350                         08 0A 00000000:00000000 7
`

// bigEndian converts the words of the addresses to those of a big-endian machine.
func bigEndian(text string) string {
	return strings.NewReplacer("6601A8C0:", "C0A80166:", "2DE66882:", "8268E62D:", "0100007F:", "7F000001:",
		"000001FD000000000000000002000000:", "FD010000000000000000000000000002:",
		"000001FD000000000000000001000000:", "FD010000000000000000000000000001:").Replace(text)
}

func TestParseProcMPTCP(t *testing.T) {
	text := procMPTCP
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		text = bigEndian(text)
	}
	got, err := parseProcMPTCP(text)
	if err != nil {
		t.Fatal(err)
	}
	ap := netip.MustParseAddrPort
	one := func(family int, state State, local, remote string, send, recv, inode uint64, p ProcMPTCP) Connection {
		return Connection{Socket: Socket{
			Proto: MPTCP, Family: family, State: state, Local: ap(local), Remote: ap(remote),
			SendQ: Known(send), RecvQ: Known(recv), Inode: inode,
		}, Proc: &p}
	}
	want := []Connection{
		one(unix.AF_INET, Established, "192.168.1.102:59551", "130.104.230.45:80", 16, 3, 21895, ProcMPTCP{Known(0x2d0b85ba), Known(0x39f8ccc5), Known(2)}),
		one(unix.AF_INET6, SynSent, "[fd01::2]:41030", "[fd01::1]:443", 0, 0, 0, ProcMPTCP{Known(0x85ba), Value{}, Known(1)}),
		one(unix.AF_INET, CloseWait, "127.0.0.1:80", "127.0.0.1:50000", 0, 0, 7, ProcMPTCP{Value{}, Value{}, Known(10)}),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	heading, rest, _ := strings.Cut(procMPTCP, "\n")
	if got, err := parseProcMPTCP(heading + "\n"); err != nil || len(got) != 0 {
		t.Errorf("no connection: %+v, %v", got, err)
	}
	line, _, _ := strings.Cut(rest, "\n")
	for _, bad := range []string{
		"", "text", heading + "\nx", heading + "\n" + strings.Replace(line, " 0 ", " 1 ", 1), heading + "\n" + strings.Replace(line, "21895", "-1", 1),
		heading + "\n" + strings.Replace(line, "00000010:", "", 1), heading + "\n" + strings.Replace(line, ":0050", "", 1),
		heading + "\n" + strings.Replace(line, " 01 ", " 101 ", 1),
	} {
		if got, err := parseProcMPTCP(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func FuzzProcMPTCP(f *testing.F) {
	f.Add(procMPTCP)
	f.Add(bigEndian(procMPTCP))
	f.Fuzz(func(t *testing.T, text string) {
		conns, err := parseProcMPTCP(text)
		if err != nil {
			return
		}
		for _, c := range conns {
			if !c.Local.IsValid() || !c.Remote.IsValid() || c.Proc == nil || !c.Proc.Subflows.Known {
				t.Errorf("%+v", c)
			}
		}
	})
}

type files map[string]string

func (f files) ReadFile(_ context.Context, path string) ([]byte, error) {
	if text, ok := f[path]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// The newer path is tried first.
func TestProcConnections(t *testing.T) {
	heading, _, _ := strings.Cut(procMPTCP, "\n")
	for name, c := range map[string]struct {
		files files
		n     int
		fails bool
	}{
		"none":    {files{}, 0, true},
		"old":     {files{"/proc/net/mptcp": procMPTCP}, 3, false},
		"newer":   {files{"/proc/net/mptcp_net/mptcp": procMPTCP}, 3, false},
		"both":    {files{"/proc/net/mptcp_net/mptcp": heading, "/proc/net/mptcp": procMPTCP}, 0, false},
		"strange": {files{"/proc/net/mptcp": "?"}, 0, true},
	} {
		got, err := ProcConnections(t.Context(), c.files)
		if len(got) != c.n || (err != nil) != c.fails || errors.Is(err, ErrUnsupported) != (name == "none") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// oldKernel is a kernel before Linux 5.9: it does not know INET_DIAG_REQ_PROTOCOL.
type oldKernel struct{ raw []byte }

func (k oldKernel) Netlink(context.Context, int, ...uint32) (*netlink.Conn, error) {
	return nltest.Dial(func(req []netlink.Message) ([]netlink.Message, error) {
		if req[0].Data[1] != unix.IPPROTO_RAW || req[0].Data[0] != unix.AF_INET || k.raw == nil {
			return nil, io.EOF // nothing
		}
		h := netlink.Header{Type: sockDiagByFamily, Sequence: req[0].Header.Sequence, PID: nltest.PID}
		return []netlink.Message{{Header: h, Data: k.raw}}, nil
	}), nil
}

// Raw sockets are not mistaken for MPTCP sockets, and an empty list does not mean that
// there are no connections.
func TestOldKernel(t *testing.T) {
	raw := inetMessage(t, func(*netlink.AttributeEncoder) {})
	for _, k := range []oldKernel{{}, {raw}} {
		if got, err := List(t.Context(), k, MPTCP); !errors.Is(err, ErrUnsupported) {
			t.Errorf("MPTCP: %+v, %v", got, err)
		}
	}
	if got, err := List(t.Context(), oldKernel{raw}, Raw); err != nil || len(got) != 1 {
		t.Errorf("raw: %+v, %v", got, err)
	}
}
