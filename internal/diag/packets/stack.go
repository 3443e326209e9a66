// SPDX-License-Identifier: Apache-2.0

// Package packets captures the packets of a running stack. It implements the
// interfaces of pkg/capture with a control connection.
package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Stack is the stack behind a control connection. It implements capture.Stack.
type Stack struct{ conn *stackconn.Conn }

// New returns the stack behind conn.
func New(conn *stackconn.Conn) *Stack { return &Stack{conn} }

// Interfaces lists the interfaces, in the order of their numbers.
func (st *Stack) Interfaces(ctx context.Context) ([]capture.Interface, error) {
	conn := st.conn
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil, err
	}
	addrs, err := stacknet.Addresses(ctx, conn)
	if err != nil {
		return nil, err
	}
	var all []capture.Interface
	for _, l := range stacknet.Sorted(links) {
		i := capture.Interface{
			Index: l.Index, Name: l.Name, Loopback: l.Flags&unix.IFF_LOOPBACK != 0,
			LinkType: linkType(l.Type), Snaplen: capture.MaxSnaplen, OS: "Linux " + conn.Hello().Release,
		}
		if i.LinkType == capture.LinkTypeEthernet && !i.Loopback {
			i.MAC = l.MAC
		}
		if i.Speed, err = speed(ctx, conn, l.Name); err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if a.IfIndex == l.Index {
				i.Addrs = append(i.Addrs, a.Prefix)
			}
		}
		all = append(all, i)
	}
	return all, nil
}

// linkType returns the link type of a SOCK_RAW packet socket on a device, which
// tells whether packets have an Ethernet header.
func linkType(arphrd uint16) capture.LinkType {
	if arphrd == unix.ARPHRD_ETHER || arphrd == unix.ARPHRD_LOOPBACK {
		return capture.LinkTypeEthernet
	}
	return capture.LinkTypeRaw
}

// speed returns the speed that the device reports, in bit/s. It returns 0 if
// the device reports none, as most devices of the stack do.
func speed(ctx context.Context, conn *stackconn.Conn, name string) (uint64, error) {
	b, err := conn.ReadFile(ctx, "/sys/class/net/"+name+"/speed")
	var no syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &no) && no == syscall.EINVAL:
		return 0, nil
	case err != nil:
		return 0, err
	}
	mbit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || mbit <= 0 { // -1 means unknown
		return 0, nil //nolint:nilerr // text that is not a number means that the speed is unknown
	}
	return uint64(mbit) * 1e6, nil
}

// Watch calls changed for each change of an interface.
func (st *Stack) Watch(ctx context.Context, changed func(index int, gone bool) error) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	err := stacknet.Monitor(watching, st.conn, func(n stacknet.News) {
		if n.Link == nil || failed != nil {
			return
		}
		if failed = changed(n.IfIndex, n.Link.Gone); failed != nil {
			cancel()
		}
	})
	if failed != nil {
		err = failed
	}
	return st.over(ctx, err)
}

// overLimit bounds the time to query why a stack has ended.
const overLimit = 10 * time.Second

// over converts an error that only means the end of the stack to io.EOF. When a
// stack ends, its host reports that it has no kernel, and then closes the
// connection. If the kernel runs inside the program, the host reports that the
// program has ended. A kernel panic remains an error.
func (st *Stack) over(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, stackconn.ErrClosed), errors.Is(err, syscall.ESHUTDOWN):
		return io.EOF
	case errors.Is(err, syscall.EIO):
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), overLimit)
		defer cancel()
		hello, herr := st.conn.Refresh(last)
		if herr != nil || hello.State != ctlproto.CTL_STATE_PANICKED {
			return io.EOF //nolint:nilerr // a stack host that does not answer has ended
		}
		return fmt.Errorf("%w: %w", capture.ErrDied, err)
	}
	return err
}

// layout holds the field offsets of struct mmsghdr and of its struct msghdr
// (recvmmsg(2)), for the word size of the stack.
type layout struct {
	word      int // size of an address and of a size_t
	timestamp int // value of Conn.Timestamp

	size                                                     int // size of a struct mmsghdr
	nameAt, nameLen, iov, iovLen, control, controlLen, count int
	cmsg                                                     int // size of a struct cmsghdr
}

func layoutOf(conn *stackconn.Conn) layout { return layoutFor(conn.WordSize(), conn.Timestamp()) }

func layoutFor(w, timestamp int) layout {
	return layout{
		word: w, timestamp: timestamp,
		nameLen: w, iov: 2 * w, iovLen: 3 * w, control: 4 * w, controlLen: 5 * w, // msg_flags follows
		count: 7 * w, size: 8 * w, cmsg: w + 8,
	}
}

// put writes a size_t.
func (l layout) put(b []byte, n int) {
	if l.word == 4 {
		binary.LittleEndian.PutUint32(b, uint32(n))
		return
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
}

// get reads a size_t, limited to most.
func (l layout) get(b []byte, most int) int {
	n := uint64(binary.LittleEndian.Uint32(b))
	if l.word == 8 {
		n = binary.LittleEndian.Uint64(b)
	}
	return int(min(n, uint64(most)))
}
