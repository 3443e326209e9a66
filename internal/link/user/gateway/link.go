// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// mac is the gateway's own, locally administered Ethernet address.
var mac = tcpip.LinkAddress([]byte{0x02, 'l', 'k', 'l', 0, 1})

// link is the router's network device. It transfers frames over a socket that
// preserves message boundaries. If the socket is full, the router waits, so no
// frame between the two stacks is dropped.
type link struct {
	conn net.Conn
	cfg  Config
	mtu  atomic.Uint32
	// other is called for packets of the stack to elsewhere that are neither TCP
	// nor UDP, which the gateway never forwards; nil: not called.
	other func(protocol string, to netip.Addr)
	from  atomic.Pointer[tcpip.LinkAddress] // source address of the last frame: the stack's address

	mu         sync.Mutex
	dispatcher stack.NetworkDispatcher

	writing sync.Mutex
	frame   []byte // the frame being written

	received sync.WaitGroup
}

func newLink(conn net.Conn, cfg Config) *link {
	l := &link{conn: conn, cfg: cfg, frame: make([]byte, 0, cfg.MTU+header.EthernetMinimumSize)}
	l.mtu.Store(uint32(cfg.MTU))
	l.received.Add(1)
	return l
}

// receive passes frames to the router until the link is closed.
func (l *link) receive() {
	defer l.received.Done()
	frame := make([]byte, header.EthernetMinimumSize+1<<16)
	for {
		n, err := l.conn.Read(frame)
		if err != nil || n == 0 {
			return
		}
		l.deliver(frame[:n])
	}
}

func (l *link) deliver(frame []byte) {
	if len(frame) < header.EthernetMinimumSize {
		return
	}
	eth := header.Ethernet(frame)
	if dst := eth.DestinationAddress(); dst != mac && !header.IsMulticastEthernetAddress(dst) {
		return
	}
	if src := eth.SourceAddress(); src != l.stackMAC() {
		l.from.Store(&src)
	}
	if l.other != nil {
		l.tellOther(eth.Type(), frame[header.EthernetMinimumSize:])
	}
	if l.echoElsewhere(eth.Type(), frame[header.EthernetMinimumSize:]) {
		return
	}
	l.mu.Lock()
	d := l.dispatcher
	l.mu.Unlock()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: buffer.MakeWithData(frame[header.EthernetMinimumSize:]),
	})
	// Short frames may or may not be padded. Checksums are trusted, because
	// the frame has crossed no wire.
	d.DeliverNetworkPacket(eth.Type(), pkt)
	pkt.DecRef()
}

// stackMAC returns the stack's Ethernet address. It is known after the first
// frame.
func (l *link) stackMAC() tcpip.LinkAddress {
	if a := l.from.Load(); a != nil {
		return *a
	}
	return ""
}

// echoElsewhere reports whether packet is a ping to an address other than the
// gateway's. The router answers for all addresses, so its answer would claim
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

func (l *link) close() {
	l.conn.Close()
	l.received.Wait()
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
		f := append(l.frame[:0], pkt.EgressRoute.RemoteLinkAddress...)
		f = append(f, src...)
		f = binary.BigEndian.AppendUint16(f, uint16(pkt.NetworkProtocolNumber))
		for _, part := range pkt.AsSlices() {
			f = append(f, part...)
		}
		if _, err := l.conn.Write(f); err != nil {
			return n, &tcpip.ErrClosedForSend{}
		}
		n++
	}
	return n, nil
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
