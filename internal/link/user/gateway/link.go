// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link/ring"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// mac is the gateway's own, locally administered Ethernet address.
var mac = tcpip.LinkAddress([]byte{0x02, 'l', 'k', 'l', 0, 1})

// link is the router's network device. Frames go through memory that this process shares
// with the stack, or over a socket that preserves message boundaries if the stack does not
// support that. If there is no room for a frame, the router waits, so no frame between the
// two stacks is dropped.
type link struct {
	cfg Config
	log *slog.Logger
	mtu atomic.Uint32
	// other is called for packets of the stack to elsewhere that are neither TCP
	// nor UDP, which the rules never permit; nil: not called.
	other func(protocol string, to netip.Addr)
	// kernel starts the gateway's kernel and returns the end towards it, or nil if there is
	// none. It is called once, for the first connection; nil: not called.
	kernel func(stack *ring.End) *ring.End
	// echo is called for pings to elsewhere.
	echo func(protocol tcpip.NetworkProtocolNumber, packet []byte)
	from atomic.Pointer[tcpip.LinkAddress] // source address of the last frame: the stack's address

	known chan struct{} // closed when from is known

	mu         sync.Mutex
	dispatcher stack.NetworkDispatcher
	ended      bool // close has been called

	writing sync.Mutex
	shared  *ring.End // nil: conn is used. Changed with both mutexes
	conn    net.Conn
	closed  bool
	frame   []byte // the frame being written to conn

	received sync.WaitGroup
}

// newLink creates a link. It returns the stack's end: the bell of the shared memory. If the
// host forbids such memory, as in some containers, the end is nil and plain must be called.
func newLink(cfg Config, log *slog.Logger) (*link, *os.File) {
	shared, bell, err := ring.New()
	if err != nil {
		log.Debug("the gateway uses a socket instead of shared memory", "error", err)
	}
	l := &link{cfg: cfg, log: log, shared: shared, known: make(chan struct{})}
	l.mtu.Store(uint32(cfg.MTU))
	return l, bell
}

// plain replaces the shared memory by a socket, whose other end it returns. No frame may
// have been transferred.
func (l *link) plain() (*os.File, error) {
	conn, end, err := netdev.Pair("gateway")
	if err != nil {
		return nil, err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.shared != nil {
		l.shared.Close()
		l.received.Wait()
		l.shared.Release()
	}
	l.mu.Lock()
	l.shared, l.conn = nil, conn
	l.mu.Unlock()
	l.frame = make([]byte, 0, l.cfg.MTU+header.EthernetMinimumSize)
	l.start()
	return end, nil
}

// start passes frames to the router until the link is closed.
func (l *link) start() {
	if shared := l.shared; shared != nil {
		if l.kernel != nil {
			shared.Stop = connects
		}
		l.received.Go(func() { l.receiveShared(shared) })
		return
	}
	if conn := l.conn; conn != nil {
		l.received.Go(func() { l.receive(conn) })
	}
}

func (l *link) receiveShared(shared *ring.End) {
	for {
		var v *buffer.View
		err := shared.Receive(func(size int) []byte {
			v = buffer.NewViewSize(size)
			return v.AsSlice()
		})
		if errors.Is(err, ring.ErrStopped) {
			v.Release()
			shared.Stop = nil
			if next := l.kernel(shared); next != nil {
				shared = next
			}
			continue
		}
		if err != nil { // the stack has ended, or breaks the rules
			return
		}
		l.deliver(v)
	}
}

// replace makes the kernel the end of the stack's wire, and next the end of another one with
// the kernel. No frame is lost or changes its place.
func (l *link) replace(old, next *ring.End, join func(bell *os.File) error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return net.ErrClosed
	}
	if err := old.HandOver(join); err != nil {
		return err
	}
	old.Release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared = next; l.ended {
		next.Close()
	}
	return nil
}

// connects reports whether a frame asks for a TCP connection.
func connects(frame []byte) bool {
	eth, rest := header.Ethernet(frame), frame[header.EthernetMinimumSize:]
	var segment []byte
	switch {
	case eth.Type() == header.IPv4ProtocolNumber && len(rest) >= header.IPv4MinimumSize:
		ip := header.IPv4(rest)
		if n := int(ip.HeaderLength()); ip.Protocol() == uint8(header.TCPProtocolNumber) && n <= len(rest) {
			segment = rest[n:]
		}
	case eth.Type() == header.IPv6ProtocolNumber && len(rest) >= header.IPv6MinimumSize:
		if header.IPv6(rest).NextHeader() == uint8(header.TCPProtocolNumber) {
			segment = rest[header.IPv6MinimumSize:]
		}
	}
	return len(segment) >= header.TCPMinimumSize && header.TCP(segment).Flags()&header.TCPFlagSyn != 0
}

func (l *link) receive(conn net.Conn) {
	frame := make([]byte, header.EthernetMinimumSize+1<<16)
	for {
		n, err := conn.Read(frame)
		if err != nil || n == 0 {
			return
		}
		l.deliver(buffer.NewViewWithData(frame[:n]))
	}
}

// deliver passes a frame to the router. It owns v from then on.
func (l *link) deliver(v *buffer.View) {
	frame := v.AsSlice()
	if len(frame) < header.EthernetMinimumSize || !l.wanted(frame) {
		v.Release()
		return
	}
	l.mu.Lock()
	d := l.dispatcher
	l.mu.Unlock()
	if d == nil {
		v.Release()
		return
	}
	protocol := header.Ethernet(frame).Type()
	v.TrimFront(header.EthernetMinimumSize)
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	// Short frames may or may not be padded. Checksums are trusted, because
	// the frame has crossed no wire.
	d.DeliverNetworkPacket(protocol, pkt)
	pkt.DecRef()
}

// wanted reports whether the router gets a frame.
func (l *link) wanted(frame []byte) bool {
	eth := header.Ethernet(frame)
	if dst := eth.DestinationAddress(); dst != mac && !header.IsMulticastEthernetAddress(dst) {
		return false
	}
	if src := eth.SourceAddress(); src != l.stackMAC() {
		if l.from.Swap(&src) == nil {
			close(l.known)
		}
	}
	if l.other != nil {
		l.logDropped(eth.Type(), frame[header.EthernetMinimumSize:])
	}
	if l.echoElsewhere(eth.Type(), frame[header.EthernetMinimumSize:]) {
		l.echo(eth.Type(), frame[header.EthernetMinimumSize:])
		return false
	}
	return true
}

// stackMAC returns the stack's Ethernet address. It is known after the first
// frame.
func (l *link) stackMAC() tcpip.LinkAddress {
	if a := l.from.Load(); a != nil {
		return *a
	}
	return ""
}

// meet waits until the stack's Ethernet address is known. A stack without IPv6 may not have
// sent a frame, so meet asks for its IPv4 address.
func (l *link) meet(ctx context.Context) error {
	for {
		select {
		case <-l.known:
			return nil
		default:
		}
		ask := make(header.ARP, header.ARPSize)
		ask.SetIPv4OverEthernet()
		ask.SetOp(header.ARPRequest)
		copy(ask.HardwareAddressSender(), mac)
		copy(ask.ProtocolAddressSender(), l.cfg.Gateway.AsSlice())
		copy(ask.ProtocolAddressTarget(), l.cfg.Address.Addr().AsSlice())
		if err := l.sendTo(header.EthernetBroadcastAddress, header.ARPProtocolNumber, ask); err != nil {
			return err
		}
		select {
		case <-l.known:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// echoElsewhere reports whether packet is an ICMP message, for IPv6 a ping, to an address
// other than the gateway's. The router answers for all addresses, so its answer would claim
// that a machine it never contacted is alive.
func (l *link) echoElsewhere(protocol tcpip.NetworkProtocolNumber, packet []byte) bool {
	switch {
	case protocol == header.IPv4ProtocolNumber && len(packet) >= header.IPv4MinimumSize:
		return header.IPv4(packet).TransportProtocol() == header.ICMPv4ProtocolNumber &&
			!l.cfg.own(netip.AddrFrom4([4]byte(packet[16:20])))
	case protocol == header.IPv6ProtocolNumber && len(packet) > header.IPv6MinimumSize:
		// Neighbour discovery, with its multicast addresses, also uses
		// ICMP.
		return header.IPv6(packet).TransportProtocol() == header.ICMPv6ProtocolNumber &&
			header.ICMPv6Type(packet[header.IPv6MinimumSize]) == header.ICMPv6EchoRequest &&
			!l.cfg.own(netip.AddrFrom16([16]byte(packet[24:40])))
	}
	return false
}

// close passes the remaining frames of the stack to the router, and ends the link.
func (l *link) close() {
	l.mu.Lock()
	l.ended = true
	shared := l.shared
	if shared != nil {
		shared.Close() // a write that waits for room ends
	}
	l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
	l.received.Wait()
	if shared == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.closed = true
	l.shared.Release()
}

// WritePackets sends frames.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	n := 0
	for _, pkt := range pkts.AsSlice() {
		src := mac
		if pkt.EgressRoute.LocalLinkAddress != "" {
			src = pkt.EgressRoute.LocalLinkAddress
		}
		if l.write(virtioHeader(pkt), pkt.EgressRoute.RemoteLinkAddress, src, pkt.NetworkProtocolNumber, pkt.AsSlices()...) != nil {
			return n, &tcpip.ErrClosedForSend{}
		}
		n++
	}
	l.flush()
	return n, nil
}

// write sends a frame; over shared memory, the stack learns of it with flush. The caller
// holds l.writing.
func (l *link) write(head [ring.HeaderSize]byte, dst, src tcpip.LinkAddress, protocol tcpip.NetworkProtocolNumber, packet ...[]byte) error {
	var eth [header.EthernetMinimumSize]byte
	copy(eth[:], dst)
	copy(eth[header.EthernetAddressSize:], src)
	binary.BigEndian.PutUint16(eth[2*header.EthernetAddressSize:], uint16(protocol))
	switch {
	case l.closed || l.shared == nil && l.conn == nil:
		return net.ErrClosed
	case l.shared != nil:
		return l.shared.Send(&head, append([][]byte{eth[:]}, packet...)...)
	}
	l.frame = append(l.frame[:0], eth[:]...)
	for _, part := range packet {
		l.frame = append(l.frame, part...)
	}
	_, err := l.conn.Write(l.frame)
	return err
}

func (l *link) flush() {
	if l.shared != nil && !l.closed {
		l.shared.Flush()
	}
}

// virtioHeader returns the struct virtio_net_hdr_v1 of a packet. The router leaves the
// checksums of TCP to the stack's device, which trusts them, because the memory between the
// two does not change them. It also leaves the segmentation to the device. If the stack
// forwards the packet, its kernel completes the packet.
func virtioHeader(pkt *stack.PacketBuffer) (h [ring.HeaderSize]byte) {
	const (
		needsChecksum  = 1
		segmentTCP4    = 1
		segmentTCP6    = 4
		ethernetHeader = header.EthernetMinimumSize
	)
	gso := pkt.GSOOptions
	if gso.Type == stack.GSONone {
		return h
	}
	le := binary.LittleEndian
	le.PutUint16(h[2:], uint16(ethernetHeader+pkt.HeaderSize()))
	if gso.NeedsCsum {
		h[0] = needsChecksum
		le.PutUint16(h[6:], ethernetHeader+gso.L3HdrLen)
		le.PutUint16(h[8:], gso.CsumOffset)
	}
	if pkt.Data().Size() > int(gso.MSS) {
		h[1] = segmentTCP4
		if gso.Type == stack.GSOTCPv6 {
			h[1] = segmentTCP6
		}
		le.PutUint16(h[4:], gso.MSS)
	}
	return h
}

// GSOMaxSize is the largest size of a packet that SupportedGSO allows.
func (l *link) GSOMaxSize() uint32 { return 1<<16 - 1 }

// SupportedGSO reports whether the stack's device completes packets of TCP.
func (l *link) SupportedGSO() stack.SupportedGSO {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.shared == nil {
		return stack.GSONotSupported
	}
	return stack.HostGSOSupported
}

// Attach and the following methods implement the router's device interface.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

func (l *link) IsAttached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dispatcher != nil
}

func (l *link) MTU() uint32                             { return l.mtu.Load() }
func (l *link) SetMTU(mtu uint32)                       { l.mtu.Store(mtu) }
func (l *link) MaxHeaderLength() uint16                 { return header.EthernetMinimumSize }
func (l *link) LinkAddress() tcpip.LinkAddress          { return mac }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   {}
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}
