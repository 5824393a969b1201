package rig

import "encoding/binary"

// A marker is the last 24 bytes of a frame that the rig sends: magic, stream,
// sequence number and its complement. It ends the frame, so that a receiver
// finds it without decoding what the gate decodes. Number and complement add
// up to zero in the Internet checksum (RFC 1071) whatever the number is, so a
// frame is built once and only numbered when it is sent.
const (
	markerSize  = 24
	markerMagic = 0x48474d31

	// fenceStream is the stream of frames that a receiver sends to itself.
	fenceStream = ^uint32(0)
)

// marker returns a marker with number 0.
func marker(stream uint32) []byte {
	b := make([]byte, markerSize)
	binary.BigEndian.PutUint32(b[0:], markerMagic)
	binary.BigEndian.PutUint32(b[4:], stream)
	number(b, 0)
	return b
}

// number writes a sequence number into the marker that ends the frame.
func number(frame []byte, seq uint64) {
	tail := frame[len(frame)-16:]
	binary.BigEndian.PutUint64(tail[0:], seq)
	binary.BigEndian.PutUint64(tail[8:], ^seq)
}

// readMarker returns stream and number of a frame, ok false if it has no
// marker.
func readMarker(frame []byte) (stream uint32, seq uint64, ok bool) {
	if len(frame) < markerSize {
		return 0, 0, false
	}
	m := frame[len(frame)-markerSize:]
	seq = binary.BigEndian.Uint64(m[8:])
	ok = binary.BigEndian.Uint32(m) == markerMagic && binary.BigEndian.Uint64(m[16:]) == ^seq
	return binary.BigEndian.Uint32(m[4:]), seq, ok
}
