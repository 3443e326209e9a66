// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// These helpers drive the far end of a wire in the driver suite.

// A flow is the data that one end of a connection sends: size bytes, or data at a given
// rate for some time.
type flow struct {
	size, seconds, rate int
	half                chan struct{} // closed when half of a rate's bytes are sent; may be nil
}

// sums are the checksums of the data that one end sent and received.
type sums struct {
	sent, received string
	err            error
}

// farLimit bounds a transfer on a busy machine.
const farLimit = 4 * kit.Limit

func (f flow) limit() time.Time {
	return time.Now().Add(farLimit + time.Duration(f.seconds)*time.Second)
}

// serveFar accepts one connection at addr in far. It returns the port and a function
// that waits for the checksums.
func (w *wire) serveFar(addr string, f flow) (int, func() sums) {
	w.Helper()
	l := w.far.Listen(w.T, net.JoinHostPort(w.farName(addr), "0")).(*net.TCPListener)
	got := make(chan sums, 1)
	go func() {
		defer l.Close()
		if err := l.SetDeadline(f.limit()); err != nil {
			got <- sums{err: err}
			return
		}
		c, err := l.Accept()
		if err != nil {
			got <- sums{err: err}
			return
		}
		got <- f.transfer(c)
	}()
	return l.Addr().(*net.TCPAddr).Port, func() sums { return <-got }
}

// farName returns the address by which far itself reaches the stack's address addr.
func (w *wire) farName(addr string) string {
	for _, own := range []string{farAddr, farAddr6} {
		if own == addr {
			return addr
		}
	}
	return "" // an address of far on another wire
}

// dialFar connects from far to addr. It returns a function that waits for the
// checksums.
func (w *wire) dialFar(addr string, port int, f flow) func() sums {
	got := make(chan sums, 1)
	go func() {
		var c net.Conn
		err := w.far.Enter(func() (err error) {
			c, err = net.DialTimeout("tcp", net.JoinHostPort(addr, fmt.Sprint(port)), farLimit)
			return err
		})
		if err != nil {
			got <- sums{err: err}
			return
		}
		got <- f.transfer(c)
	}()
	return func() sums { return <-got }
}

// askFar sends datagrams from far to an echo server at addr until one comes back.
func (w *wire) askFar(addr string, port int) error {
	var c net.Conn
	if err := w.far.Enter(func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(addr, fmt.Sprint(port)))
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 100)
	var err error
	for range 30 {
		if _, err = c.Write([]byte("a datagram")); err != nil {
			continue // the previous datagram was refused
		}
		if err = c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		var n int
		if n, err = c.Read(b); err == nil && string(b[:n]) == "a datagram" {
			return nil
		}
	}
	return fmt.Errorf("no answer: %w", err)
}

// transfer sends and, at the same time, receives until the end of the stream.
func (f flow) transfer(c net.Conn) sums {
	defer c.Close()
	if err := c.SetDeadline(f.limit()); err != nil {
		return sums{err: err}
	}
	sent, received := sha256.New(), sha256.New()
	failed := make(chan error, 1)
	go func() { failed <- f.send(io.MultiWriter(c, sent), c.(*net.TCPConn)) }()
	_, err := io.Copy(received, c)
	if serr := <-failed; err == nil {
		err = serr
	}
	return sums{hex.EncodeToString(sent.Sum(nil)), hex.EncodeToString(received.Sum(nil)), err}
}

func (f flow) send(w io.Writer, c *net.TCPConn) error {
	random := rand.NewChaCha8([32]byte{byte(rand.Uint32())})
	block := make([]byte, 1<<16)
	began := time.Now()
	length := time.Duration(f.seconds) * time.Second
	for done := 0; f.size > 0 && done < f.size || f.size == 0 && time.Since(began) < length; {
		_, _ = random.Read(block) // never fails
		part := block
		if f.size > 0 {
			part = block[:min(len(block), f.size-done)]
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
		done += len(part)
		if f.half != nil && done >= f.rate*f.seconds/2 {
			close(f.half)
			f.half = nil
		}
		if f.rate > 0 { // this paces the data; it does not wait for an event
			time.Sleep(time.Until(began.Add(time.Duration(done) * time.Second / time.Duration(f.rate))))
		}
	}
	return c.CloseWrite()
}
