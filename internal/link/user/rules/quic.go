// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A QUIC client says the server name in its first packets, of type Initial. Their keys follow
// from the connection ID that the client has chosen (RFC 9001, 5.2). A hello can be in several
// datagrams, in any order. They wait until the hello is whole, which delays nothing, because
// the server waits, too.
//
// The server can miss or ignore some of the packets. It must not be able to put together
// another hello from the rest. So a byte of a connection's hello never changes, also in a
// retransmission, and a connection belongs to one flow.

const (
	// maxQUIC is the maximum number of connections that are remembered.
	maxQUIC = 4096
	// quicLife is the time after its last Initial packet for which a connection is remembered
	// at least. Servers give up a handshake earlier.
	quicLife = 2 * time.Minute
	// maxQUICHello bounds the hellos of a connection, and the datagrams that wait for the rest.
	maxQUICHello = 16 << 10
	// minInitial is the minimum size of a datagram with a client's Initial packet (RFC 9000, 14.1).
	minInitial = 1200
)

var (
	errQUIC        = errors.New("a QUIC packet is malformed")
	errQUICVersion = errors.New("the program uses an unknown version of QUIC, so the server name cannot be read")
	errQUICKeys    = errors.New("the server name in a QUIC packet cannot be read")
	errQUICChanged = errors.New("the program changes its QUIC hello")
	errQUICFlow    = errors.New("another UDP port of the program uses the same QUIC connection ID")
	errQUICMany    = fmt.Errorf("the program has more than %d new QUIC connections", maxQUIC)
	errQUICLong    = errors.New("the QUIC hello is too long to be checked")
)

// quicVersion is a version of QUIC whose Initial packets are known.
type quicVersion struct {
	number  uint32
	salt    string
	prefix  string // of the labels of keys
	initial byte   // the type of Initial packets; those of 0-RTT, Handshake and Retry follow
}

var quicVersions = [...]quicVersion{
	{1, "\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a", "quic", 0},            // RFC 9001, 5.2
	{0x6b3343cf, "\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9", "quicv2", 1}, // RFC 9369, 3
}

// quicKeys are the keys of a client's Initial packets.
type quicKeys struct {
	packet cipher.AEAD
	iv     []byte
	header cipher.Block
}

func (v *quicVersion) keys(id string) *quicKeys {
	derive := func(secret []byte, label string, n int) []byte {
		label = "tls13 " + label
		b, err := hkdf.Expand(sha256.New, secret, "\x00"+string([]byte{byte(n), byte(len(label))})+label+"\x00", n)
		if err != nil {
			panic(err) // cannot happen: the length is small
		}
		return b
	}
	block := func(key []byte) cipher.Block {
		b, err := aes.NewCipher(key)
		if err != nil {
			panic(err) // cannot happen: the length is right
		}
		return b
	}
	initial, err := hkdf.Extract(sha256.New, []byte(id), []byte(v.salt))
	if err != nil {
		panic(err) // cannot happen
	}
	secret := derive(initial, "client in", sha256.Size)
	aead, err := cipher.NewGCM(block(derive(secret, v.prefix+" key", 16)))
	if err != nil {
		panic(err) // cannot happen: AES has the right block size
	}
	return &quicKeys{aead, derive(secret, v.prefix+" iv", aead.NonceSize()), block(derive(secret, v.prefix+" hp", 16))}
}

// quicID identifies a connection by its destination and the first connection ID.
type quicID struct {
	to netip.AddrPort
	id string
}

// quicConn is a connection that the program has begun.
type quicConn struct {
	quicID
	flow    *Flow
	keys    [len(quicVersions)]*quicKeys
	largest int64 // packet number
	last    time.Time

	data    []byte   // of CRYPTO frames
	have    []bool   // which bytes of data are known
	checked int      // the length of the whole hellos in data, which are permitted
	over    bool     // it is refused, or an audit permits it; nothing is checked any more
	waiting [][]byte // datagrams that wait for the rest of a hello
	waits   int      // total size of waiting
}

// Datagram checks a datagram of the program, and calls pass for those that may pass on. The
// error is of type *DeniedError if this datagram is refused.
func (f *Flow) Datagram(b []byte, pass func([]byte) error) error {
	if !f.rule.spend(len(b)) {
		return f.rules.refused(f.socket, f.rule.spent())
	}
	if len(f.names) == 0 || len(b) == 0 || b[0] < 0x80 { // not a long header (RFC 9000, 17.2)
		return pass(b)
	}
	ready, err := f.datagram(b)
	for _, d := range ready {
		err = pass(d)
	}
	return err
}

func (f *Flow) datagram(b []byte) (ready [][]byte, err error) {
	r := f.rules
	r.quicMu.Lock()
	defer r.quicMu.Unlock()
	c, bad := f.readQUIC(b)
	again := false
	switch {
	case c != nil:
		again, c.over = c.over, c.over || bad != nil
	case bad == nil:
		return [][]byte{b}, nil
	case slices.Contains(f.bad, bad):
		again = true
	default:
		f.bad = append(f.bad, bad)
	}
	switch {
	case again && r.Audit == nil:
		return nil, &DeniedError{Reason: "it is refused already"}
	case !again && bad != nil:
		err = f.says(said{}, bad)
	case !again:
		err = c.say()
	}
	switch {
	case c == nil && err == nil:
		return [][]byte{b}, nil
	case c == nil:
		return nil, err
	case err != nil:
		c.over, c.waiting = true, nil
		return nil, err
	case !c.over && !c.whole():
		if c.waits += len(b); c.waits <= maxQUICHello { // otherwise it is lost, as on a wire
			c.waiting = append(c.waiting, bytes.Clone(b))
		}
		return nil, nil
	}
	ready = append(c.waiting, b)
	c.waiting, c.waits = nil, 0
	return ready, nil
}

// readQUIC reads the Initial packets of a datagram. It returns the connection of the datagram,
// or nil if it is unknown, and the reason for which the datagram is refused.
func (f *Flow) readQUIC(b []byte) (c *quicConn, err error) {
	var id []byte
	for first := true; len(b) > 0 && b[0] >= 0x80; first = false {
		p, rest, err := parseQUIC(b)
		switch {
		case err == nil && p == nil && first:
			return nil, nil
		case err == nil && (p == nil || !first && !bytes.Equal(id, p.id)): // RFC 9000, 12.2
			err = errQUIC
		case err == nil && p.initial:
			var plain []byte
			at := c
			if c, plain, err = f.openQUIC(p); at != nil && at != c {
				c, err = at, errQUIC
			}
			if err == nil && !c.over {
				err = c.read(plain)
			}
		case err == nil && c == nil:
			if of := f.rules.quic[quicID{f.to, string(p.id)}]; of != nil && of.flow == f {
				c = of
			}
		}
		if err != nil {
			return c, err
		}
		id, b = p.id, rest
	}
	return c, nil
}

// quicPacket is a packet with a long header.
type quicPacket struct {
	initial bool
	version int    // index in quicVersions
	id      []byte // destination connection ID
	whole   []byte
	number  int // offset of the packet number in whole
}

// parseQUIC cuts a packet with a long header from a datagram. The packet is nil if no server
// acts on the datagram as on a hello of QUIC.
func parseQUIC(b []byte) (p *quicPacket, rest []byte, err error) {
	r := quicReader{b: b[1:]}
	version := r.number(4)
	id := r.take(r.number(1))
	source := r.take(r.number(1))
	v := slices.IndexFunc(quicVersions[:], func(v quicVersion) bool { return uint64(v.number) == version })
	if v < 0 {
		// Other protocols look like this, too, but rarely like a client's first packet. A
		// server answers the versions 0x?a?a?a?a with those that it supports (RFC 9000, 15).
		if version == 0 || version&0x0f0f0f0f == 0x0a0a0a0a || r.bad || b[0]&0x40 == 0 || len(b) < minInitial || len(id) < 8 || len(id) > 20 || len(source) > 20 {
			return nil, nil, nil
		}
		return nil, nil, errQUICVersion
	}
	kind := (b[0]>>4 - quicVersions[v].initial) & 3
	if kind == 0 {
		r.take(r.varint()) // the token
	}
	size := r.varint()
	at := len(b) - len(r.b)
	r.take(size)
	if r.bad || len(id) > 20 || len(source) > 20 || kind == 3 { // no client sends Retry
		return nil, nil, errQUIC
	}
	return &quicPacket{kind == 0, v, id, b[:len(b)-len(r.b)], at}, r.b, nil
}

// quicReader reads the fields of a packet. After the end, it sets bad.
type quicReader struct {
	b   []byte
	bad bool
}

func (r *quicReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *quicReader) number(bytes uint64) (v uint64) {
	for _, x := range r.take(bytes) {
		v = v<<8 | uint64(x)
	}
	return v
}

// varint reads an integer whose first two bits are its length (RFC 9000, 16).
func (r *quicReader) varint() uint64 {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	size := uint64(1) << (r.b[0] >> 6)
	return r.number(size) &^ (3 << (8*size - 2))
}

// openQUIC decrypts an Initial packet. Its keys follow from its connection ID, or from the
// first one of the connection.
func (f *Flow) openQUIC(p *quicPacket) (c *quicConn, plain []byte, err error) {
	all := f.rules.quic
	id := quicID{f.to, string(p.id)}
	if c = all[id]; c == nil {
		c = &quicConn{quicID: id, flow: f, largest: -1}
	}
	if plain = c.open(p); plain != nil {
		switch now := f.rules.Now(); {
		case c.flow != f:
			return nil, nil, errQUICFlow
		case all[id] == nil && !f.rules.forgetQUIC(now):
			return nil, nil, errQUICMany
		default:
			all[id], c.last = c, now
			return c, plain, nil
		}
	}
	for _, c = range all {
		if c.flow == f {
			if plain = c.open(p); plain != nil {
				c.last = f.rules.Now()
				return c, plain, nil
			}
		}
	}
	return nil, nil, errQUICKeys
}

// forgetQUIC makes room for a new connection, and reports whether there is room.
func (r *Rules) forgetQUIC(now time.Time) bool {
	if len(r.quic) >= maxQUIC {
		maps.DeleteFunc(r.quic, func(_ quicID, c *quicConn) bool { return now.Sub(c.last) > quicLife })
	}
	return len(r.quic) < maxQUIC
}

// open removes the protection of a packet (RFC 9001, 5.3 and 5.4). It returns nil if the packet
// has other keys.
func (c *quicConn) open(p *quicPacket) []byte {
	const sample, sampled = 4, aes.BlockSize
	if len(p.whole) < p.number+sample+sampled {
		return nil
	}
	if c.keys[p.version] == nil {
		c.keys[p.version] = quicVersions[p.version].keys(c.id)
	}
	k := c.keys[p.version]
	var mask [aes.BlockSize]byte
	k.header.Encrypt(mask[:], p.whole[p.number+sample:][:sampled])
	head := bytes.Clone(p.whole[:p.number+4])
	head[0] ^= mask[0] & 0x0f
	size := int(head[0]&3) + 1
	head = head[:p.number+size]
	var low int64
	for i := range size {
		head[p.number+i] ^= mask[1+i]
		low = low<<8 | int64(head[p.number+i])
	}
	number := packetNumber(c.largest, low, size)
	nonce := bytes.Clone(k.iv)
	at := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)^uint64(number))
	plain, err := k.packet.Open([]byte{}, nonce, p.whole[len(head):], head)
	if err != nil {
		return nil
	}
	c.largest = max(c.largest, number)
	return plain
}

// packetNumber completes the low bytes of a packet number (RFC 9000, A.3).
func packetNumber(largest, low int64, size int) int64 {
	window := int64(1) << (8 * size)
	n := (largest+1)&^(window-1) | low
	switch {
	case n <= largest+1-window/2:
		n += window
	case n > largest+1+window/2 && n >= window:
		n -= window
	}
	return n
}

// read reads the frames of an Initial packet (RFC 9000, 12.4 and 19).
func (c *quicConn) read(plain []byte) error {
	for r := (quicReader{b: plain}); len(r.b) > 0; {
		switch kind := r.varint(); kind {
		case 0, 1: // PADDING, PING
		case 2, 3: // ACK
			r.varint()
			r.varint()
			ranges := r.varint()
			for n := uint64(0); n <= 2*ranges && !r.bad; n++ { // the varint has 62 bits
				r.varint()
			}
			for n := 0; kind == 3 && n < 3; n++ {
				r.varint()
			}
		case 6: // CRYPTO
			at := r.varint()
			if err := c.add(at, r.take(r.varint())); err != nil {
				return err
			}
		case 0x1c: // CONNECTION_CLOSE
			r.varint()
			r.varint()
			r.take(r.varint())
		default:
			return errQUIC
		}
		if r.bad {
			return errQUIC
		}
	}
	return nil
}

// add adds a part of the hello.
func (c *quicConn) add(at uint64, b []byte) error {
	if at+uint64(len(b)) > maxQUICHello {
		return errQUICLong
	}
	if more := int(at) + len(b) - len(c.data); more > 0 {
		c.data, c.have = append(c.data, make([]byte, more)...), append(c.have, make([]bool, more)...)
	}
	for i, x := range b {
		n := int(at) + i
		if c.have[n] && c.data[n] != x {
			return errQUICChanged
		}
		c.data[n], c.have[n] = x, true
	}
	return nil
}

// whole reports whether all hellos are whole, and permitted. There is a second one if the
// server has asked for it (HelloRetryRequest).
func (c *quicConn) whole() bool { return c.checked > 0 && c.checked == len(c.data) }

// say decides about the hellos that have become whole.
func (c *quicConn) say() error {
	end := slices.Index(c.have, false)
	if end < 0 {
		end = len(c.have)
	}
	for {
		b := c.data[c.checked:end]
		if len(b) < 4 {
			return nil
		}
		size := 4 + (int(b[1])<<16 | int(b[2])<<8 | int(b[3]))
		switch {
		case b[0] != 1: // client_hello
			c.over = true
			return c.flow.says(said{}, errQUIC)
		case size > maxQUICHello:
			c.over = true
			return c.flow.says(said{}, errQUICLong)
		case size > len(b):
			return nil
		}
		names, err := serverName(b[4:size])
		c.checked += size
		if err = c.flow.says(said{"QUIC", names}, err); err != nil {
			return err
		}
	}
}
