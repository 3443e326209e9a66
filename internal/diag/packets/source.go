// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/capture"
)

// source is a packet socket in a stack, on one interface. It implements
// capture.Source.
type source struct {
	stack *Stack
	conn  *stackconn.Conn
	sock  *stackconn.Socket
	opt   capture.Options
	after *bpf.VM // filter that cannot run in the stack; nil: there is none

	wait    []*batch // batches for few messages; their calls may block
	drain   []*batch // batches for many messages each
	hurry   bool     // the last read returned more than a few packets
	more    bool     // the last read was so large that more packets must be waiting
	stopped bool
	stats   counted
}

// Open opens a packet socket on an interface. The socket collects packets from then on.
func (st *Stack) Open(ctx context.Context, opt capture.Options) (capture.Source, error) {
	conn, i := st.conn, &opt.Interface
	if i.Snaplen <= 0 || i.Snaplen > capture.MaxSnaplen {
		i.Snaplen = capture.MaxSnaplen
	}
	if opt.Buffer <= 0 || opt.Buffer == capture.DefaultBuffer {
		opt.Buffer = defaultBuffer(ctx, conn)
	}
	l := layoutOf(conn)
	s := &source{stack: st, conn: conn, opt: opt, wait: []*batch{newBatch(l, i.Snaplen, waitBatch)}}
	for range drainCalls {
		s.drain = append(s.drain, newBatch(l, i.Snaplen, drainBatch))
	}
	prog, err := s.program()
	if err != nil {
		return nil, err
	}
	// A socket without a protocol receives nothing, so no packet arrives before its
	// filter is attached.
	s.sock, err = conn.Socket(ctx, unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err == nil {
		err = s.setUp(ctx, prog)
	}
	if err != nil {
		if s.sock != nil {
			s.sock.Close()
		}
		return nil, fmt.Errorf("capturing on %s: %w", i.Name, err)
	}
	return s, nil
}

// defaultBuffer returns capture.DefaultBuffer, or a smaller size for a stack with little
// memory.
func defaultBuffer(ctx context.Context, conn *stackconn.Conn) int {
	var total int // in KiB; 0 if the stack does not report it
	if text, err := conn.ReadFile(ctx, "/proc/meminfo"); err == nil {
		_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &total)
	}
	if total == 0 {
		return capture.DefaultBuffer
	}
	return min(capture.DefaultBuffer, total<<10/8)
}

// program returns the filter program that runs in the stack. If the filter cannot run
// there, program sets s.after instead.
func (s *source) program() ([]bpf.RawInstruction, error) {
	i := &s.opt.Interface
	prog, err := capture.Compile(i.Filter, i.LinkType, i.Snaplen)
	if err != nil {
		return nil, err
	}
	if i.LinkType == capture.LinkTypeEthernet && looksForVLAN(i.Filter) {
		insns, ok := bpf.Disassemble(prog)
		if !ok {
			return nil, &capture.FilterError{Filter: i.Filter, Words: "makes a program that only a kernel can run"}
		}
		if s.after, err = bpf.NewVM(insns); err != nil {
			return nil, &capture.FilterError{Filter: i.Filter, Words: err.Error()}
		}
		prog = []bpf.RawInstruction{{Op: retK, K: uint32(i.Snaplen)}}
	}
	d := s.opt.Direction
	if i.Loopback && d == capture.Unknown {
		d = capture.In
	}
	return onlyDirection(d, prog), nil
}

func (s *source) setUp(ctx context.Context, prog []bpf.RawInstruction) error {
	if err := s.sock.AttachFilter(ctx, prog); err != nil {
		return fmt.Errorf("attaching the filter: %w", err)
	}
	size := s.opt.Buffer / 2 // the kernel doubles the size, socket(7)
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size); err != nil {
		// The stack is the host's own, and we are not allowed to force the size.
		if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			return fmt.Errorf("setting the buffer to %d bytes: %w", s.opt.Buffer, err)
		}
	}
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return fmt.Errorf("enabling packet lengths: %w", err)
	}
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, s.conn.Timestamp(), 1); err != nil {
		return fmt.Errorf("enabling timestamps: %w", err)
	}
	return s.sock.Bind(ctx, sockaddrLL(s.opt.Interface.Index))
}

// sockaddrLL builds a struct sockaddr_ll (packet(7)) for all protocols on an
// interface.
func sockaddrLL(ifindex int) []byte {
	b := make([]byte, unix.SizeofSockaddrLinklayer)
	binary.NativeEndian.PutUint16(b, unix.AF_PACKET)
	binary.BigEndian.PutUint16(b[2:], unix.ETH_P_ALL)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	return b
}

// gather is the time to collect packets before a read, if there are many packets. A read
// costs the stack's thread the same for one packet as for a hundred.
const gather = 4 * time.Millisecond

// drainCalls is the number of simultaneous calls. On a busy machine an answer takes
// milliseconds. In this time, more packets arrive than one call returns.
const drainCalls = 4

// largeFetch is a number of bytes. If a read returns more, the next read follows
// immediately, without gathering.
const largeFetch = 512 << 10

// waitLimit bounds one blocking call in the stack. The call is then repeated.
const waitLimit = time.Minute

// Read waits for packets and returns them, with Packet.Interface set to 0. After Stop it
// returns the remaining packets, then io.EOF. It also returns io.EOF if the interface no
// longer exists. If ctx ends, Read returns the error of ctx. No packet is lost in that
// case, and Read can be called again.
func (s *source) Read(ctx context.Context) ([]capture.Packet, error) {
	for {
		if s.hurry && !s.more && !s.stopped {
			select {
			case <-time.After(gather):
			case <-ctx.Done(): // the call continues, and a later Read returns its packets
				return nil, context.Cause(ctx)
			}
		}
		packets, err := s.fetch(ctx)
		switch {
		case len(packets) > 0:
			return packets, nil
		case err == nil:
		case errors.Is(err, syscall.ENETDOWN): // reported only once; earlier packets can still be read
		case !errors.Is(err, syscall.EAGAIN):
			return nil, s.ended(ctx, err)
		case s.stopped:
			return nil, io.EOF
		default:
			if gone, err := s.gone(ctx); gone || err != nil {
				return nil, s.ended(ctx, err)
			}
		}
	}
}

// fetch reads the available packets. If the last read returned few packets, fetch waits
// for the first one. It may ignore the error of one call if other calls succeed, because
// the next fetch gets the error again.
func (s *source) fetch(ctx context.Context) (all []capture.Packet, err error) {
	batches, call := s.wait, stackconn.Call{Wait: unix.EPOLLIN, Timeout: waitLimit}
	if s.hurry || s.stopped {
		batches, call = s.drain, stackconn.Call{}
	}
	started := 0
	for _, b := range batches {
		if err = b.start(ctx, s.conn, s.sock.FD(), call); err != nil {
			break
		}
		started++
	}
	var malformed error
	count, bytes := 0, 0
	for _, b := range batches[:started] {
		n, rerr := b.received(ctx)
		if err == nil || errors.Is(err, syscall.EAGAIN) {
			err = rerr
		}
		packets, perr := s.packets(b, n)
		if perr != nil {
			malformed = perr
		}
		all = append(all, packets...)
		count, bytes = count+n, bytes+b.bytes(n)
	}
	s.hurry = count >= waitBatch/2
	s.more = count >= drainBatch || bytes >= largeFetch
	if malformed != nil {
		return nil, malformed
	}
	return all, err
}

// packets returns the packets of a batch that pass the filter.
func (s *source) packets(b *batch, n int) ([]capture.Packet, error) {
	packets, err := b.packets(n, s.opt.Interface.LinkType)
	if err != nil || s.after == nil {
		return packets, err
	}
	kept := packets[:0]
	for _, p := range packets {
		if take, err := s.after.Run(p.Data); err == nil && take > 0 {
			kept = append(kept, p)
		}
	}
	s.stats.refused(uint64(len(packets) - len(kept)))
	return kept, nil
}

// gone reports whether the interface no longer exists. In that case the kernel binds the
// socket to interface number -1 (packet_notifier, net/packet/af_packet.c).
func (s *source) gone(ctx context.Context) (bool, error) {
	name, err := s.sock.Sockname(ctx)
	return err == nil && len(name) >= 8 && int32(binary.NativeEndian.Uint32(name[4:])) == -1, err
}

// ended returns the error with which Read ends. If err is nil, the interface no
// longer exists.
func (s *source) ended(ctx context.Context, err error) error {
	if err == nil {
		return io.EOF
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.stack.over(ctx, fmt.Errorf("capturing on %s: %w", s.opt.Interface.Name, err))
}

// Stop stops the capture. Packets that are already in the stack can still be
// read.
func (s *source) Stop(ctx context.Context) error {
	s.stopped = true
	return s.stack.over(ctx, s.sock.AttachFilter(ctx, reject))
}

// Close closes the socket.
func (s *source) Close() error { return s.sock.Close() }

// counted sums the stack's counters. The stack resets its counters each time it
// reports them.
type counted struct {
	mu    sync.Mutex
	stats capture.Stats
}

// refused subtracts packets that a filter outside the stack has rejected.
func (c *counted) refused(n uint64) {
	c.mu.Lock()
	c.stats.Received -= n
	c.mu.Unlock()
}

// Stats returns the counters since Open (PACKET_STATISTICS, packet(7)). After
// Stop and the io.EOF of Read, Received minus Dropped is the number of packets
// that Read has returned.
func (s *source) Stats(ctx context.Context) (capture.Stats, error) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	b := make([]byte, 8) // struct tpacket_stats
	if _, err := s.sock.Getsockopt(ctx, unix.SOL_PACKET, unix.PACKET_STATISTICS, b); err != nil {
		return s.stats.stats, fmt.Errorf("reading the drop counter of %s: %w", s.opt.Interface.Name, err)
	}
	s.stats.stats.Received += uint64(binary.NativeEndian.Uint32(b))
	s.stats.stats.Dropped += uint64(binary.NativeEndian.Uint32(b[4:]))
	return s.stats.stats, nil
}
