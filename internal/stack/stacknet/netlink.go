// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Netlink reads and changes a stack's routing tables, rules and MPTCP endpoints. It may
// be used by one goroutine at a time.
type Netlink struct {
	r  *rtnl
	g  *netlink.Conn // generic netlink; opened when needed
	pm uint16        // family ID of the path manager

	c   *stackconn.Conn
	ctx context.Context //nolint:containedctx // it bounds the life of the two connections
}

// Protocol marks routes and rules that lklrun has made to follow the main table and the
// interfaces (`ip route show table 100`: "proto 76"). The kernel accepts any number from
// 5 on (include/uapi/linux/rtnetlink.h).
const Protocol = 76

// Open opens a Netlink that works until ctx is done. The caller closes it.
func Open(ctx context.Context, c *stackconn.Conn) (*Netlink, error) {
	r, err := openRoute(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Netlink{r: r, c: c, ctx: ctx}, nil
}

// Close closes both connections.
func (n *Netlink) Close() {
	n.r.close()
	if n.g != nil {
		n.g.Close()
	}
}

// Link returns the interface called name; ok is false if there is none.
func (n *Netlink) Link(name string) (l LinkState, ok bool, err error) {
	msgs, err := n.r.request(unix.RTM_GETLINK, 0, ifinfomsg(0, 0, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
	})
	if errors.Is(err, syscall.ENODEV) {
		return LinkState{}, false, nil
	}
	if err != nil {
		return LinkState{}, false, fmt.Errorf("inspecting the stack's %s: %w", name, err)
	}
	links, err := parseLinks(msgs)
	if err != nil || len(links) != 1 {
		return LinkState{}, false, err
	}
	return links[0], true, nil
}

// Links lists all interfaces.
func (n *Netlink) Links() ([]LinkState, error) { return n.r.links() }

// Addresses lists the addresses of all interfaces.
func (n *Netlink) Addresses() ([]Address, error) { return n.r.addresses() }

// Request is a change for Do.
type Request struct {
	m     netlink.Message
	pm    bool          // for the path manager
	never syscall.Errno // the error that means "already so"
	err   error         // error from building the request
}

func request(typ netlink.HeaderType, flags netlink.HeaderFlags, head []byte, fill func(*netlink.AttributeEncoder)) Request {
	attrs, err := attributes(fill)
	return Request{err: err, m: netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | flags},
		Data:   append(head, attrs...),
	}}
}

// Do makes changes in order and returns the result of each. Requests for the same
// connection are sent together.
func (n *Netlink) Do(all ...Request) []error {
	errs := make([]error, len(all))
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].pm == all[from].pm {
			to++
		}
		n.together(all[from:to], errs[from:to])
		from = to
	}
	return errs
}

// mostTogether is the number of requests that are sent with one system call. The smallest
// default buffer of a netlink socket (208 KiB) has room for as many answers.
const mostTogether = 64

// together sends requests to one connection. Each is sent once. A second attempt at a
// successful request would fail, and the caller would conclude that another program created
// the object.
func (n *Netlink) together(all []Request, errs []error) {
	var err error
	for from := 0; from < len(all); from += mostTogether {
		to := min(from+mostTogether, len(all))
		if err == nil {
			err = n.atOnce(all[from:to], errs[from:to])
		}
		for i := from; err != nil && i < to; i++ {
			errs[i] = err
		}
	}
	for i, q := range all {
		if q.never != 0 && errors.Is(errs[i], q.never) {
			errs[i] = nil
		}
	}
}

// atOnce sends requests with one system call in the stack, and stores the result of each in
// errs. It returns an error if the results are not known.
func (n *Netlink) atOnce(all []Request, errs []error) error {
	c := n.r.conn
	if all[0].pm {
		if err := n.path(); err != nil {
			return err
		}
		c = n.g
	}
	var msgs []netlink.Message
	var sent []int // numbers of the requests in msgs
	for i, q := range all {
		if errs[i] = q.err; q.err != nil {
			continue
		}
		if q.pm {
			q.m.Header.Type = netlink.HeaderType(n.pm)
		}
		q.m.Header.Flags |= netlink.Acknowledge
		msgs, sent = append(msgs, q.m), append(sent, i)
	}
	if len(msgs) == 0 {
		return nil
	}
	msgs, err := c.SendMessages(msgs)
	if err != nil {
		return kernelError(err)
	}
	for i, m := range msgs { // the stack answers each in order
		answer, err := c.Receive()
		var op *netlink.OpError
		if err == nil {
			err = netlink.Validate(m, answer)
		} else if errors.As(err, &op) && op.Sequence == m.Header.Sequence {
			errs[sent[i]] = kernelError(err)
			continue
		}
		if err != nil {
			return kernelError(err)
		}
	}
	return nil
}
