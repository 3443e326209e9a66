// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package tunnel

import (
	"bytes"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.zx2c4.com/wireguard/conn"
)

const (
	socketBatch  = pipeBatch
	socketBytes  = 4 << 20 // of the socket's buffers; the host reduces it to its limit
	controlBytes = 64      // room for the address that a datagram was sent to
)

// batcher moves several datagrams with one system call. The Message of ipv6 is
// the same type.
type batcher interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// socket is one UDP socket.
type socket struct {
	conn    *net.UDPConn
	four    bool
	batch   batcher
	in, out []ipv4.Message
	last    *endpoint // the sender of the last datagram
}

func newSocket(c *net.UDPConn, four bool) *socket {
	_ = c.SetReadBuffer(socketBytes)
	_ = c.SetWriteBuffer(socketBytes)
	s := &socket{conn: c, four: four, in: make([]ipv4.Message, socketBatch), out: make([]ipv4.Message, socketBatch)}
	for n := range s.in {
		s.in[n].Buffers = make([][]byte, 1)
	}
	if four {
		s.batch = ipv4.NewPacketConn(c)
	} else {
		s.batch = ipv6.NewPacketConn(c)
	}
	return s
}

// rememberAddress makes endpoints remember the address that the sender has used.
func (s *socket) rememberAddress() error {
	for n := range s.in {
		s.in[n].OOB = make([]byte, controlBytes)
	}
	if s.four {
		return ipv4.NewPacketConn(s.conn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	}
	return ipv6.NewPacketConn(s.conn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
}

// receive waits for datagrams and takes all that are there, up to a limit.
func (s *socket) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	many := min(len(packets), len(s.in))
	for n := range many {
		s.in[n].Buffers[0] = packets[n]
		s.in[n].OOB = s.in[n].OOB[:cap(s.in[n].OOB)]
	}
	n, err := s.batch.ReadBatch(s.in[:many], 0)
	if err != nil {
		return 0, err
	}
	for k := range n {
		sizes[k] = s.in[k].N
		eps[k] = s.sender(&s.in[k])
	}
	return n, nil
}

// sender returns the endpoint of a datagram.
func (s *socket) sender(m *ipv4.Message) *endpoint {
	addr, to := m.Addr.(*net.UDPAddr), m.OOB[:m.NN]
	if l := s.last; l != nil && l.addr.Port == addr.Port && l.addr.IP.Equal(addr.IP) && l.addr.Zone == addr.Zone && bytes.Equal(l.seen, to) {
		return l
	}
	s.last = &endpoint{addr: addr, seen: bytes.Clone(to), from: s.answerFrom(to)}
	return s.last
}

// answerFrom returns the control message that makes an answer leave from the
// address that a datagram was sent to. Routes choose the device.
func (s *socket) answerFrom(control []byte) []byte {
	if len(control) == 0 {
		return nil
	}
	if s.four {
		var m ipv4.ControlMessage
		if m.Parse(control) != nil || m.Dst == nil {
			return nil
		}
		return (&ipv4.ControlMessage{Src: m.Dst}).Marshal()
	}
	var m ipv6.ControlMessage
	if m.Parse(control) != nil || m.Dst == nil {
		return nil
	}
	answer := &ipv6.ControlMessage{Src: m.Dst}
	if m.Dst.IsLinkLocalUnicast() {
		answer.IfIndex = m.IfIndex
	}
	return answer.Marshal()
}

// send sends datagrams. The caller prevents concurrent calls.
func (s *socket) send(bufs [][]byte, to *endpoint) error {
	for len(bufs) > 0 {
		many := min(len(bufs), len(s.out))
		for n := range many {
			s.out[n].Buffers, s.out[n].Addr, s.out[n].OOB = bufs[n:n+1], to.addr, to.from
		}
		n, err := s.batch.WriteBatch(s.out[:many], 0)
		if err != nil {
			return err
		}
		bufs = bufs[n:]
	}
	return nil
}

// endpoint is the address of the other end. It does not change.
type endpoint struct {
	addr *net.UDPAddr
	seen []byte // the control message of its datagrams
	from []byte // the control message for answers; nil: routes choose the source address
}

// ClearSrc does nothing, because an endpoint is replaced by the next datagram.
func (e *endpoint) ClearSrc()           {}
func (e *endpoint) SrcToString() string { return "" }
func (e *endpoint) SrcIP() netip.Addr   { return netip.Addr{} }
func (e *endpoint) DstToString() string { return e.addr.String() }
func (e *endpoint) DstIP() netip.Addr   { return e.addr.AddrPort().Addr().Unmap() }
func (e *endpoint) DstToBytes() []byte {
	b, _ := e.addr.AddrPort().MarshalBinary()
	return b
}
