// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stackconn"
)

// DefaultBuffer is the socket's buffer in the stack, in bytes, when Options says
// nothing; less where that is more than an eighth of the stack's memory. A packet
// takes its kept bytes and about 800 more.
const DefaultBuffer = 32 << 20

// Options say what a Source takes.
type Options struct {
	Interface Interface // Index, LinkType, Snaplen and Filter count
	Direction Direction // In or Out alone; Unknown: both
	Buffer    int       // bytes; 0 or DefaultBuffer: what DefaultBuffer says
}

// Source is a packet socket in a stack, on one interface. Read is for one
// goroutine, Stats may be called beside it.
type Source struct {
	conn  *stackconn.Conn
	sock  *stackconn.Socket
	opt   Options
	after *bpf.VM // a filter that cannot run in the stack; nil: none

	wait    []*batch // one of few messages, that may be waited for
	drain   []*batch // of many messages each
	hurry   bool     // more than a few came last time
	more    bool     // so much came that there is more already
	stopped bool
	stats   counted
}

// Open opens a packet socket on an interface. Packets from then on are in it.
func Open(ctx context.Context, conn *stackconn.Conn, opt Options) (*Source, error) {
	i := &opt.Interface
	if i.Snaplen <= 0 || i.Snaplen > MaxSnaplen {
		i.Snaplen = MaxSnaplen
	}
	if opt.Buffer <= 0 || opt.Buffer == DefaultBuffer {
		opt.Buffer = defaultBuffer(ctx, conn)
	}
	l := layoutOf(conn)
	s := &Source{conn: conn, opt: opt, wait: []*batch{newBatch(l, i.Snaplen, waitBatch)}}
	for range drainCalls {
		s.drain = append(s.drain, newBatch(l, i.Snaplen, drainBatch))
	}
	prog, err := s.program()
	if err != nil {
		return nil, err
	}
	// Without a protocol it hears nothing until its filter is there.
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

// defaultBuffer is DefaultBuffer, or what a stack with little memory can spare.
func defaultBuffer(ctx context.Context, conn *stackconn.Conn) int {
	var total int // in KiB; of a stack that does not tell, 0
	if text, err := conn.ReadFile(ctx, "/proc/meminfo"); err == nil {
		_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &total)
	}
	if total == 0 {
		return DefaultBuffer
	}
	return min(DefaultBuffer, total<<10/8)
}

// program is what runs in the stack; what cannot run there is in s.after.
func (s *Source) program() ([]bpf.RawInstruction, error) {
	i := &s.opt.Interface
	prog, err := Compile(i.Filter, i.LinkType, i.Snaplen)
	if err != nil {
		return nil, err
	}
	if i.LinkType == LinkTypeEthernet && looksForVLAN(i.Filter) {
		insns, ok := bpf.Disassemble(prog)
		if !ok {
			return nil, &FilterError{i.Filter, "makes a program that only a kernel can run"}
		}
		if s.after, err = bpf.NewVM(insns); err != nil {
			return nil, &FilterError{i.Filter, err.Error()}
		}
		prog = []bpf.RawInstruction{{Op: retK, K: uint32(i.Snaplen)}}
	}
	d := s.opt.Direction
	if i.Loopback && d == Unknown {
		d = In
	}
	return onlyDirection(d, prog), nil
}

func (s *Source) setUp(ctx context.Context, prog []bpf.RawInstruction) error {
	if err := s.sock.AttachFilter(ctx, prog); err != nil {
		return fmt.Errorf("attaching the filter: %w", err)
	}
	size := s.opt.Buffer / 2 // the kernel doubles it, socket(7)
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size); err != nil {
		// A stack that is the host's own, without the right to force it.
		if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			return fmt.Errorf("setting the buffer to %d bytes: %w", s.opt.Buffer, err)
		}
	}
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return fmt.Errorf("asking for lengths: %w", err)
	}
	if err := s.sock.SetsockoptInt(ctx, unix.SOL_SOCKET, s.conn.Timestamp(), 1); err != nil {
		return fmt.Errorf("asking for times: %w", err)
	}
	return s.sock.Bind(ctx, sockaddrLL(s.opt.Interface.Index))
}

// sockaddrLL is struct sockaddr_ll (packet(7)) for all protocols on an interface.
func sockaddrLL(ifindex int) []byte {
	b := make([]byte, unix.SizeofSockaddrLinklayer)
	binary.NativeEndian.PutUint16(b, unix.AF_PACKET)
	binary.BigEndian.PutUint16(b[2:], unix.ETH_P_ALL)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	return b
}

// Interface is what is captured.
func (s *Source) Interface() Interface { return s.opt.Interface }

// gather is how long packets gather, when many come, before they are fetched: each
// fetch costs the stack's thread the same, whether it brings one or a hundred.
const gather = 4 * time.Millisecond

// drainCalls is how many calls fetch packets at once: on a busy machine an answer
// takes milliseconds, in which more packets come than one call brings.
const drainCalls = 4

// largeFetch is how many bytes of packets are so many that the next ones are not
// left to gather.
const largeFetch = 512 << 10

// waitLimit is how long one call waits in the stack; it is made again.
const waitLimit = time.Minute

// Read returns the next packets, with Packet.Interface left 0; it waits for the
// first. After Stop it returns those that are left, then io.EOF; io.EOF, too, when
// the interface is gone. When ctx ends it returns the context's error, and no
// packet is lost: Read can be called again.
func (s *Source) Read(ctx context.Context) ([]Packet, error) {
	for {
		if s.hurry && !s.more && !s.stopped {
			select {
			case <-time.After(gather):
			case <-ctx.Done(): // fetches what there is all the same, later
				return nil, context.Cause(ctx)
			}
		}
		packets, err := s.fetch(ctx)
		switch {
		case len(packets) > 0:
			return packets, nil
		case err == nil:
		case errors.Is(err, syscall.ENETDOWN): // told once; the packets before it can still be read
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

// fetch gets what packets there are; where few came last time, it waits for the
// first. A call that fails beside others that bring packets fails again the next time.
func (s *Source) fetch(ctx context.Context) (all []Packet, err error) {
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

// packets are those of a batch that the filter takes.
func (s *Source) packets(b *batch, n int) ([]Packet, error) {
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

// gone says whether the interface does not exist any more: the socket is bound to
// number -1 then (packet_notifier, net/packet/af_packet.c).
func (s *Source) gone(ctx context.Context) (bool, error) {
	name, err := s.sock.Sockname(ctx)
	return err == nil && len(name) >= 8 && int32(binary.NativeEndian.Uint32(name[4:])) == -1, err
}

// ended is what Read says at the end; nil: the interface is gone.
func (s *Source) ended(ctx context.Context, err error) error {
	if err == nil {
		return io.EOF
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("capturing on %s: %w", s.opt.Interface.Name, err)
}

// Stop lets no more packets in; those that are in the stack can still be read.
func (s *Source) Stop(ctx context.Context) error {
	s.stopped = true
	return s.sock.AttachFilter(ctx, reject)
}

// Close closes the socket.
func (s *Source) Close() error { return s.sock.Close() }
