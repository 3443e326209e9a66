// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"os"

	"github.com/lklrun/lklrun/internal/base/lazyregexp"
)

// Keys reads the TLS secrets that programs append to a file, in the format of NSS and
// SSLKEYLOGFILE. The programs are not trusted: Keys passes on only lines of that format, and
// no more than maxKeys bytes.
type Keys struct {
	file *os.File
	at   int64 // offset of the next line
	sum  int   // bytes passed on
}

const (
	maxKeys    = 16 << 20 // some 100,000 connections
	maxKeyLine = 1 << 10
)

// keyLine matches a label, the client random and a secret (RFC 9850, 2).
var keyLine = lazyregexp.New(`^[A-Z][A-Z0-9_]{0,63} [0-9a-fA-F]{64} (?:[0-9a-fA-F]{2}){1,128}$`)

// NewKeys returns a reader of the file from its beginning. Other processes may still append
// to it. Keys never closes the file.
func NewKeys(file *os.File) *Keys { return &Keys{file: file} }

// more returns the lines that are new and complete.
func (k *Keys) more() []byte {
	st, err := k.file.Stat()
	if err != nil || st.Size() == k.at {
		return nil
	}
	if st.Size() < k.at {
		k.at = 0 // a program has truncated it
	}
	var found []byte
	buf := make([]byte, 64<<10)
	for k.sum < maxKeys {
		n, err := k.file.ReadAt(buf, k.at)
		whole := bytes.LastIndexByte(buf[:n], '\n') + 1
		if whole == 0 && n > maxKeyLine {
			whole = n // no key
		}
		for line := range bytes.Lines(buf[:whole]) {
			if len(line) <= maxKeyLine && keyLine().Match(bytes.TrimRight(line, "\r\n")) {
				found = append(found, line...)
			}
		}
		k.at += int64(whole)
		k.sum += whole
		if err != nil || whole == 0 {
			break
		}
	}
	return found
}

// KeyHandler is a Handler that also receives TLS secrets. They arrive before the packets of
// the same time.
type KeyHandler interface {
	Keys(lines []byte) error
}

// A Decryption Secrets Block (draft-ietf-opsawg-pcapng, 4.7) with a TLS key log.
const (
	blockSecrets  = 10
	secretsTLSLog = 0x544c534b
)

// WriteKeys writes lines of a TLS key log. Readers use them for the packets that follow.
func (p *Pcapng) WriteKeys(lines []byte) error {
	p.begin(blockSecrets)
	p.u32(secretsTLSLog)
	p.u32(uint32(len(lines)))
	p.bytes(lines)
	return p.end()
}
