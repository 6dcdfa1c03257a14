"""Operations on whole arrays and buffers that decoding and encoding share. Start at `gather`."""
