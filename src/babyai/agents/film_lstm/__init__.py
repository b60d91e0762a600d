"""The paper's five architectures: convolutions with FiLM, an LSTM, an actor and a critic."""
