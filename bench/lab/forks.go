// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The kernel's process events connector, include/uapi/linux/cn_proc.h and connector.h:
// struct nlmsghdr, struct cn_msg of 20 bytes, and struct proc_event, which begins with
// the event type.
const (
	procEvents = 1 // CN_IDX_PROC, CN_VAL_PROC, and the multicast group
	listen     = 1 // PROC_CN_MCAST_LISTEN
	forked     = 1 // PROC_EVENT_FORK
	headers    = unix.SizeofNlMsghdr + 20
)

// forks is a socket that receives events of new processes and threads, including
// kernel threads.
type forks struct{ nl *netlink.Conn }

// hearForks starts to listen. It needs root in the machine's initial pid namespace.
func hearForks() (*forks, error) {
	nl, err := netlink.Dial(unix.NETLINK_CONNECTOR, &netlink.Config{Groups: procEvents})
	if err != nil {
		return nil, err
	}
	f := &forks{nl}
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: headers, Size: 4}, // loaded as if big endian
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, forked)), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err == nil {
		err = nl.SetBPF(program)
	}
	if err == nil {
		order := binary.NativeEndian.AppendUint32(nil, procEvents)
		order = binary.NativeEndian.AppendUint32(order, procEvents)
		order = append(order, make([]byte, 8)...) // no sequence number
		order = binary.NativeEndian.AppendUint16(order, 4)
		order = binary.NativeEndian.AppendUint16(order, 0)
		order = binary.NativeEndian.AppendUint32(order, listen)
		_, err = nl.Send(netlink.Message{Header: netlink.Header{Type: netlink.Done}, Data: order})
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *forks) close() { _ = f.nl.Close() } // the error does not matter: no data can be lost

// next waits for at least one event. It then waits until no event arrives for a moment,
// because a new kernel thread gets its name late. It returns false if ctx is done or the
// connection has failed.
func (f *forks) next(ctx context.Context) bool {
	defer context.AfterFunc(ctx, f.close)()
	if err := f.nl.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	if _, err := f.nl.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return false
	}
	const moment, most = 5 * time.Millisecond, 50 * time.Millisecond
	for end := time.Now().Add(most); time.Now().Before(end); {
		if err := f.nl.SetReadDeadline(time.Now().Add(moment)); err != nil {
			return false
		}
		if _, err := f.nl.Receive(); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return false
		}
	}
	return ctx.Err() == nil
}
