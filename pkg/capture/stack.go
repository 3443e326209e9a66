// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"net/netip"
)

// Stack is a network stack whose packets a Session captures. Its methods may be
// called concurrently. Watch, and Read and Stop of a Source, return io.EOF if
// the stack has ended, or an error that wraps ErrDied if its kernel has panicked.
type Stack interface {
	// Interfaces lists the interfaces on which packets can be captured.
	Interfaces(context.Context) ([]Interface, error)

	// Open begins to capture on an interface. The error is syscall.ENODEV
	// if the interface is gone.
	Open(context.Context, Options) (Source, error)

	// Watch calls changed when an interface appears, changes or disappears, until
	// ctx ends or changed returns an error. It returns that error.
	Watch(ctx context.Context, changed func(index int, gone bool) error) error

	// Sockets lists the TCP and UDP sockets, for annotations.
	Sockets(context.Context) ([]Socket, error)
}

// Source is a capture on one interface. One goroutine calls Read and Stop.
// Stats may be called concurrently.
type Source interface {
	// Read waits for packets and returns them, with Packet.Interface 0. After Stop
	// it returns the remaining ones, then io.EOF. It also returns io.EOF if the
	// interface is gone. If ctx ends, it returns the context's error. In this case
	// no packet is lost, and Read can be called again.
	Read(context.Context) ([]Packet, error)

	// Stats returns the counters since Open.
	Stats(context.Context) (Stats, error)

	// Stop ends the capture. Packets captured before can still be read.
	Stop(context.Context) error

	// Close releases the source.
	Close() error
}

// DefaultBuffer is the default size of the socket's buffer in the stack, in bytes.
// It is reduced to an eighth of the stack's memory if necessary. Each packet uses
// about 800 bytes in addition to its captured bytes.
const DefaultBuffer = 32 << 20

// Options contains the options of a Source.
type Options struct {
	Interface Interface // an interface that Stack.Interfaces returned, with Snaplen and Filter set
	Direction Direction // In or Out only; Unknown: both
	Buffer    int       // size of the socket's buffer in bytes; 0 or DefaultBuffer: the default
}

// Socket is a socket of a stack.
type Socket struct {
	Proto  uint8          // IPPROTO_TCP or IPPROTO_UDP
	Local  netip.AddrPort // an unspecified address means all addresses
	Remote netip.AddrPort // port 0, or invalid: the socket is not connected
	Owner  *Owner         // nil: not known
	Note   string         // further text for Packet.Comment
	Early  bool           // the socket is still being connected, so a later query returns more data
}

// ErrDied reports that the kernel of the stack has panicked.
var ErrDied = errors.New("the stack's kernel has died")
